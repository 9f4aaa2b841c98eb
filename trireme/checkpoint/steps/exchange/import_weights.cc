// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/exchange/import_weights.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/safetensors_head.h"
#include "trireme/interop/weights/array_reader.h"

namespace trireme {
namespace {

using interop::SourceArray;

// In the order in which the file holds them.
struct Ordered {
  SafetensorsTensor tensor;
  const SourceArray* from;
};

std::vector<Ordered> in_file_order(const interop::WeightSource& source) {
  std::vector<Ordered> order;
  for (const SourceArray& a : source.arrays) {
    check<UsageError>(safetensors_item_size(a.array.dtype) > 0,
                      "{} is {}, a dtype that steps do not hold: convert it in Python",
                      described(a), a.array.dtype);
    check<UsageError>(a.array.name != "__metadata__", "{} has a name that files reserve",
                      described(a));
    order.push_back({{a.array.name, a.array.dtype, a.array.shape}, &a});
  }
  std::sort(order.begin(), order.end(),
            [](const Ordered& a, const Ordered& b) { return comes_before(a.tensor, b.tensor); });
  return order;
}

// Writes the bytes, and gives the checksums of their blocks.
std::vector<uint64_t> write_blocks(OutputFile& file, std::span<const uint8_t> bytes) {
  std::vector<uint64_t> blocks;
  while (!bytes.empty()) {
    const auto block =
        bytes.first(std::min<size_t>(bytes.size(), static_cast<size_t>(CheckpointIndex::kBlock)));
    blocks.push_back(Checksum::number_of(block.data(), block.size()));
    file.write(block.data(), block.size());
    bytes = bytes.subspan(block.size());
  }
  return blocks;
}

void write_model(const std::string& folder, const std::vector<Ordered>& order,
                 interop::ArrayReader& reader, CheckpointIndex& index) {
  const std::string path = folder + "/" + CheckpointIndex::kModelFile;
  std::vector<SafetensorsTensor> described;
  for (const Ordered& o : order) described.push_back(o.tensor);
  const std::string head = safetensors_head(described, {{"format", "pt"}}, path);
  OutputFile file(path);
  file.write(head.data(), head.size());
  for (const Ordered& o : order) {
    const std::string name = "model." + o.tensor.name;
    IndexPart part{Slice::whole(name, o.tensor.shape), CheckpointIndex::kModelFile};
    part.blocks = write_blocks(file, reader.elements(o.from->array));
    index.tensors[name] = {o.tensor.dtype, {std::move(part)}};
  }
  file.finish();
  index.files[CheckpointIndex::kModelFile] = {file.written(),
                                              Checksum::of(head.data(), head.size())};
}

}  // namespace

ImportedStep import_weights(const interop::WeightSource& source, const std::string& run_dir,
                            int64_t step) {
  const std::vector<Ordered> order = in_file_order(source);
  interop::ArrayReader reader;
  uint64_t bytes = 0;
  for (const Ordered& o : order) {
    reader.verify(o.from->array);
    uint64_t size = static_cast<uint64_t>(safetensors_item_size(o.tensor.dtype));
    for (int64_t n : o.tensor.shape) size *= static_cast<uint64_t>(n);
    check<UsageError>(!__builtin_add_overflow(bytes, size, &bytes) &&
                          bytes <= uint64_t{std::numeric_limits<int64_t>::max()},
                      "{} has more than 2^63 bytes of tensors", source.path);
  }
  CheckpointIndex index;
  index.step = step;
  index.layout = "imported";
  StepDraft draft(run_dir, step);
  write_model(draft.folder(), order, reader, index);
  const std::string text = index_text(index);
  OutputFile file(draft.folder() + "/" + CheckpointIndex::kFileName);
  file.write(text.data(), text.size());
  file.finish();
  fsync_path(draft.folder());
  draft.publish();
  draft.settle(std::numeric_limits<int>::max());
  return {run_dir + "/" + step_folder_name(step), bytes};
}

}  // namespace trireme
