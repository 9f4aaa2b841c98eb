// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_set>

#include "trireme/base/check.h"
#include "trireme/base/mapped_file.h"
#include "trireme/interop/array_folder.h"
#include "trireme/interop/boxes.h"
#include "trireme/interop/safetensors_header.h"
#include "trireme/interop/shards.h"
#include "trireme/interop/shown.h"
#include "trireme/interop/strict_json.h"
#include "trireme/interop/weight_map.h"

namespace trireme::interop {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kShardingInfo = "DCP_SHARDING_INFO";

std::vector<std::string> safetensors_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (entry->path().extension() == ".safetensors")
      names.push_back(entry->path().filename().string());
  if (failed)
    fail<UsageError>("cannot list folder '{}': {}: check the path", folder, failed.message());
  std::sort(names.begin(), names.end());
  return names;
}

/// For each tensor of a file, where it begins in the global one.
std::map<std::string, std::vector<int64_t>> saved_offsets(const SafetensorsHeader& header,
                                                          const std::string& path) {
  std::map<std::string, std::vector<int64_t>> offsets;
  const auto info = header.metadata.find(kShardingInfo);
  if (info == header.metadata.end()) return offsets;
  const std::string where = path + ": " + kShardingInfo;
  std::unordered_set<std::string_view> here;
  for (const NamedArray& array : header.arrays) here.insert(array.name);
  const auto add = [&](const auto&, const auto&, const std::string& name, const auto& of_array) {
    if (!here.count(name)) return;
    auto begin = json_sizes(json_member(of_array, "saved_offsets", where), where, "saved_offsets");
    check_first_of_name(offsets.emplace(name, std::move(begin)).second, name, where);
  };
  for_each_json_member(info->second, where, 4, 1, add);
  for (const NamedArray& array : header.arrays)
    check<Corrupt>(offsets.count(array.name), "{}: no '{}'", where, array.name);
  return offsets;
}

void add_box(BoxedArray& array, const NamedArray& piece, std::vector<int64_t> offsets) {
  check<Corrupt>(offsets.size() == piece.shape.size(), "{}: tensor '{}' has {} dims and {} offsets",
                 piece.file, shown(piece.name), piece.shape.size(), offsets.size());
  if (array.boxes.empty()) {
    array.name = piece.name;
    array.dtype = piece.dtype;
    array.shape.assign(piece.shape.size(), 0);
  }
  check<Corrupt>(array.dtype == piece.dtype && array.shape.size() == piece.shape.size(),
                 "{}: tensor '{}' has another dtype or number of dims than in {}", piece.file,
                 shown(piece.name), array.boxes.empty() ? piece.file : array.boxes[0].at.file);
  for (size_t dim = 0; dim < offsets.size(); ++dim) {
    int64_t end = 0;
    check<Corrupt>(!__builtin_add_overflow(offsets[dim], piece.shape[dim], &end),
                   "{}: tensor '{}' ends beyond 2^63", piece.file, shown(piece.name));
    array.shape[dim] = std::max(array.shape[dim], end);
  }
  array.boxes.push_back({std::move(offsets), piece.shape, piece});
}

}  // namespace

ArrayFolder read_safetensors_folder(const std::string& folder) {
  std::map<std::string, std::string> in_index;
  if (std::filesystem::exists(folder + "/" + kIndex)) in_index = read_weight_map(folder, kIndex);
  std::map<std::string, BoxedArray> arrays;
  const std::vector<std::string> files = safetensors_of(folder);
  bool any_sharded = false;  // where the boxes say what is missing
  for (const std::string& name : files) {
    const MappedFile file(folder + "/" + name);
    const SafetensorsHeader header = read_safetensors_header(file.bytes(), file.path());
    auto offsets = saved_offsets(header, file.path());
    const bool sharded = !offsets.empty();
    any_sharded = any_sharded || sharded;
    for (const NamedArray& piece : header.arrays) {
      const auto expected = in_index.find(piece.name);
      if (!sharded && !in_index.empty()) {
        // A folder may hold other files beside the index's, such as an adapter.
        if (expected == in_index.end() || expected->second != name) continue;
      }
      auto& offset = offsets[piece.name];
      if (offset.empty()) offset.assign(piece.shape.size(), 0);
      add_box(arrays[piece.name], piece, std::move(offset));
    }
  }
  check<UsageError>(!arrays.empty(),
                    "'{}' has no .metadata and no tensors in *.safetensors: check the path",
                    folder);
  if (in_index.empty() && !any_sharded) {
    const std::string missing = first_missing_shard(files);
    check<Corrupt>(
        missing.empty(),
        "'{}' has some of the files of a model, and {} is not there: fetch that file too", folder,
        shown(missing));
  }
  for (const auto& [name, file] : in_index)
    check<Corrupt>(arrays.count(name) == 1, "{}/{}: tensor '{}' is not in {}", folder, kIndex,
                   shown(name), shown(file));
  ArrayFolder found;
  for (auto& [name, array] : arrays) {
    check_boxes(array, folder);
    found.arrays.push_back(std::move(array));
  }
  return found;
}

ArrayFolder read_array_folder(const std::string& folder) {
  return std::filesystem::exists(folder + "/.metadata") ? read_dcp_folder(folder)
                                                        : read_safetensors_folder(folder);
}

}  // namespace trireme::interop
