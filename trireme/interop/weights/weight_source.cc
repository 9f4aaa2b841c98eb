// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weights/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/mapped_file.h"
#include "trireme/interop/flatten.h"
#include "trireme/interop/safetensors_header.h"
#include "trireme/interop/shards.h"
#include "trireme/interop/shown.h"
#include "trireme/interop/torch_file.h"
#include "trireme/interop/weight_map.h"

namespace trireme::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kContainers[] = {"model", "state_dict", "model_state_dict", "module"};
// Of the Hugging Face of old.
constexpr const char* kPickledFile = "pytorch_model.bin";
constexpr const char* kPickledIndex = "pytorch_model.bin.index.json";
// What stands beside a model in checkpoints: no weights.
constexpr const char* kOthers[] = {"optim",  "lr_sched", "sched",  "data",  "train", "step",
                                   "global", "rng",      "scaler", "epoch", "ema"};

SourceArray whole(NamedArray at) {
  SourceArray found{{at.name, at.dtype, at.shape, {}}, at.name};
  if (at.elements() > 0)
    found.array.boxes.push_back({std::vector<int64_t>(at.shape.size(), 0), at.shape, at});
  return found;
}

bool begins_in_all(const WeightSource& source, std::string_view prefix) {
  return std::all_of(source.arrays.begin(), source.arrays.end(), [&](const SourceArray& a) {
    return a.array.name.size() > prefix.size() && a.array.name.starts_with(prefix);
  });
}

void take_off(WeightSource& source, std::string_view prefix) {
  for (SourceArray& a : source.arrays) a.array.name.erase(0, prefix.size());
}

void take_off_wrapper(WeightSource& source, std::string_view wrapper) {
  take_off(source, wrapper);
  source.notes.push_back(fmt::format("'{}' is taken off all names", wrapper));
}

// Of a folder's flat names: "model", where what is beside it is an optimizer and the like.
std::string container_of_names(const WeightSource& source) {
  for (const char* container : kContainers) {
    const std::string prefix = std::string(container) + ".";
    bool any = false, others = true;
    for (const SourceArray& a : source.arrays) {
      const std::string& name = a.array.name;
      if (name.starts_with(prefix)) {
        any = true;
      } else {
        others = others && std::any_of(std::begin(kOthers), std::end(kOthers),
                                       [&](const char* other) { return name.starts_with(other); });
      }
    }
    if (any && others) return prefix;
  }
  return "";
}

void keep_container(WeightSource& source, const std::string& prefix) {
  const size_t all = source.arrays.size();
  std::erase_if(source.arrays,
                [&](const SourceArray& a) { return !a.array.name.starts_with(prefix); });
  take_off(source, prefix);
  const size_t left = all - source.arrays.size();
  source.notes.push_back(fmt::format("the weights are those under '{}'{}",
                                     prefix.substr(0, prefix.size() - 1),
                                     left > 0 ? fmt::format("; {} others were left", left) : ""));
}

// A dict below the root, which a module's own names cannot be taken for.
std::optional<std::string> container_of(const TorchFile& file) {
  const Tree& tree = file.tree();
  if (tree[tree.root].kind != Kind::dict) return {};
  for (const char* container : kContainers)
    if (const auto found = tree.find(tree.root, container); found && !file.script())
      if (tree[*found].kind == Kind::dict || tree[*found].kind == Kind::object)
        return std::string(container) + ".";
  return {};
}

void read_torch_file(const std::string& path, WeightSource& source) {
  const TorchFile file(path);
  source.kind = file.script() ? "an archive of LibTorch" : "a file of torch.save";
  for (NamedArray& array : file.arrays()) source.arrays.push_back(whole(std::move(array)));
  if (const auto prefix = container_of(file);
      prefix && std::any_of(source.arrays.begin(), source.arrays.end(),
                            [&](const auto& a) { return a.array.name.starts_with(*prefix); }))
    keep_container(source, *prefix);
}

void read_safetensors_file(const MappedFile& file, WeightSource& source) {
  source.kind = "a safetensors file";
  for (NamedArray& array : read_safetensors_header(file.bytes(), file.path()).arrays)
    source.arrays.push_back(whole(std::move(array)));
}

void read_file_of_weights(const std::string& path, WeightSource& source) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  // A safetensors file has '{' behind its header's length, where an archive has how it is packed.
  if (path.ends_with(".safetensors") || (bytes.size() > 8 && bytes[8] == '{'))
    return read_safetensors_file(file, source);
  const bool zip = bytes.size() > 4 && bytes[0] == 'P' && bytes[1] == 'K';
  const bool pickle = !bytes.empty() && bytes[0] == 0x80;  // of old, which TorchFile refuses
  check<UsageError>(zip || pickle,
                    "{} is neither a file of torch.save nor a safetensors file: give the file or "
                    "folder that has the weights",
                    path);
  read_torch_file(path, source);
}

void read_folder(const std::string& path, WeightSource& source) {
  const bool dcp = fs::exists(path + "/.metadata");
  source.kind = dcp ? "a folder of torch.distributed.checkpoint" : "a folder of safetensors files";
  for (BoxedArray& array : read_array_folder(path).arrays) {
    std::string name = array.name;
    source.arrays.push_back({std::move(array), std::move(name)});
  }
  if (const std::string prefix = dcp ? container_of_names(source) : ""; !prefix.empty())
    keep_container(source, prefix);
}

// A file may hold what the index has elsewhere, or not at all: that is left.
void read_pickled_files(const std::string& folder, WeightSource& source) {
  source.kind = "a folder of files of torch.save";
  const std::string index = folder + "/" + kPickledIndex;
  const auto file_of = read_weight_map(folder, kPickledIndex);
  std::set<std::string> files, found;
  for (const auto& [tensor, name] : file_of) files.insert(name);
  for (const std::string& name : files) {
    const std::string path = folder + "/" + name;
    check<Corrupt>(path_kind(path) == PathKind::file,
                   "{} names {}, which is not there: fetch that file too", index, shown(name));
    for (NamedArray& array : TorchFile(path).arrays()) {
      const auto expected = file_of.find(array.name);
      if (expected == file_of.end() || expected->second != name) continue;
      found.insert(array.name);
      source.arrays.push_back(whole(std::move(array)));
    }
  }
  for (const auto& [tensor, name] : file_of)
    check<Corrupt>(found.contains(tensor), "{}: tensor '{}' is not in {}", index, shown(tensor),
                   shown(name));
}

bool has_safetensors(const std::string& folder) {
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (entry->path().extension() == ".safetensors") return true;
  return false;
}

// pytorch_model-00001-of-00002.bin, …, whose tensors an index tells.
std::vector<std::string> pickled_shards(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (const std::string name = entry->path().filename().string();
        name.starts_with("pytorch_model-") && name.ends_with(".bin") && is_shard_name(name))
      names.push_back(name);
  return names;
}

[[noreturn]] void refuse_without_index(const std::string& folder,
                                       const std::vector<std::string>& shards) {
  const std::string missing = first_missing_shard(shards);
  fail<Corrupt>("'{}' has some of the files of a model, and {} is not there: fetch that file too",
                folder, missing.empty() ? kPickledIndex : missing);
}

}  // namespace

const SourceArray* WeightSource::find(const std::string& name) const {
  const auto at = std::lower_bound(
      arrays.begin(), arrays.end(), name,
      [](const SourceArray& a, const std::string& wanted) { return a.array.name < wanted; });
  return at != arrays.end() && at->array.name == name ? &*at : nullptr;
}

bool is_weight_source(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return true;
  if (!fs::is_directory(path, error)) return false;
  for (const char* ours : {"/trireme.index.json", "/latest"})
    if (fs::exists(path + ours, error)) return false;
  for (const char* theirs : {".metadata", kPickledFile, kPickledIndex})
    if (fs::exists(path + "/" + theirs, error)) return true;
  return has_safetensors(path) || !pickled_shards(path).empty();
}

WeightSource open_weights(const std::string& path) {
  WeightSource source{path, "", {}};
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(path + "/" + name, error); };
  if (!fs::is_directory(path, error))
    read_file_of_weights(path, source);
  else if (has(".metadata") || has_safetensors(path))
    read_folder(path, source);
  else if (has(kPickledFile))
    read_file_of_weights(path + "/" + kPickledFile, source);
  else if (has(kPickledIndex))
    read_pickled_files(path, source);
  else if (const auto shards = pickled_shards(path); !shards.empty())
    refuse_without_index(path, shards);
  else
    read_folder(path, source);
  check<UsageError>(!source.arrays.empty(), "{} holds no tensors", path);
  for (const char* wrapper : {"module.", "_orig_mod.", "module."})
    if (begins_in_all(source, wrapper)) take_off_wrapper(source, wrapper);
  sort_by_name(source);
  return source;
}

std::string described(const SourceArray& a) {
  const auto& boxes = a.array.boxes;
  std::string text =
      fmt::format("{}: tensor '{}'", boxes.empty() ? "" : boxes[0].at.file, shown(a.array.name));
  if (boxes.empty()) text.erase(0, 2);
  if (a.there == a.array.name && !a.transposed) return text;
  return text + fmt::format(" (there '{}'{})", shown(a.there), a.transposed ? ", transposed" : "");
}

void rename_prefix(WeightSource& source, const std::string& from, const std::string& to) {
  size_t renamed = 0;
  for (SourceArray& a : source.arrays) {
    if (!a.array.name.starts_with(from)) continue;
    ++renamed;
    a.array.name.replace(0, from.size(), to);
  }
  check<UsageError>(renamed > 0, "{} has no tensor whose name begins with '{}'", source.path, from);
  sort_by_name(source);
}

void sort_by_name(WeightSource& source) {
  auto& arrays = source.arrays;
  std::sort(arrays.begin(), arrays.end(),
            [](const SourceArray& a, const SourceArray& b) { return a.array.name < b.array.name; });
  const auto twice = std::adjacent_find(
      arrays.begin(), arrays.end(),
      [](const SourceArray& a, const SourceArray& b) { return a.array.name == b.array.name; });
  if (twice != arrays.end())
    fail<UsageError>("{}: '{}' and '{}' would both have the name '{}'", source.path,
                     shown(twice->there), shown((twice + 1)->there), shown(twice->array.name));
}

}  // namespace trireme::interop
