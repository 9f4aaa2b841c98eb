// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "trireme/base/check.h"
#include "trireme/base/mapped_file.h"
#include "trireme/interop/array_folder.h"
#include "trireme/interop/boxes.h"
#include "trireme/interop/dcp_metadata.h"
#include "trireme/interop/shown.h"
#include "trireme/interop/torch_file.h"

namespace trireme::interop {
namespace {

/// The files of a folder, each mapped once.
class DcpFiles {
 public:
  DcpFiles(const std::string& folder, const std::string& where) : folder_(folder), where_(where) {}

  TorchFile open(const DcpItem& item) {
    auto found = files_.find(item.file);
    if (found == files_.end())
      found = files_.emplace(item.file, MappedFile(path_inside(folder_, item.file, where_))).first;
    const MappedFile& file = found->second;
    check<Corrupt>(
        item.offset <= file.bytes().size() && item.length <= file.bytes().size() - item.offset,
        "{}: places {} bytes at byte {} of {}, which has {}", where_, item.length, item.offset,
        file.path(), file.bytes().size());
    return TorchFile(file.bytes().subspan(item.offset, item.length), file.path(), item.offset);
  }

 private:
  const std::string& folder_;
  const std::string& where_;
  std::map<std::string, MappedFile> files_;
};

Box box_of(const DcpChunk& chunk, const DcpTensor& tensor, DcpFiles& files,
           const std::string& where) {
  const TorchFile file = files.open(chunk.item);
  const Node& node = file.tree()[file.tree().root];
  const std::string what = where + ": tensor '" + shown(tensor.name) + "'";
  check<Corrupt>(node.kind == Kind::array, "{} has {} for a piece", what,
                 file.tree().described(file.tree().root));
  const Array& array = file.tree().arrays[static_cast<size_t>(node.integer)];
  check<Corrupt>(array.shape == chunk.lengths && array.dtype == tensor.dtype,
                 "{} has a piece of another shape or dtype than its description", what);
  return {chunk.offsets, chunk.lengths, file.located(array, tensor.name)};
}

}  // namespace

ArrayFolder read_dcp_folder(const std::string& folder) {
  const std::string where = folder + "/.metadata";
  DcpMetadata metadata = [&] {
    const MappedFile file(where);
    return read_dcp_metadata(file.bytes(), where);
  }();
  DcpFiles files(folder, where);
  ArrayFolder found;
  std::map<std::string, BoxedArray> arrays;
  for (const DcpTensor& tensor : metadata.tensors) {
    BoxedArray array{tensor.name, tensor.dtype, tensor.shape, {}};
    for (const DcpChunk& chunk : tensor.chunks)
      array.boxes.push_back(box_of(chunk, tensor, files, where));
    check_boxes(array, where);
    arrays.emplace(tensor.name, std::move(array));
  }
  for (auto& [name, array] : arrays) found.arrays.push_back(std::move(array));
  for (const DcpValue& value : metadata.values)
    found.values.emplace(value.name, files.open(value.item).tree());
  return found;
}

}  // namespace trireme::interop
