// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/reader.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/checksum.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/index.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// A step folder, opened: index and files agree with each other. Holds only what begins with the
// prefix.
struct Opened {
  std::string folder;
  CheckpointIndex index;
  std::map<std::string, SafetensorsFile> files;

  const SafetensorsEntry& entry(const IndexTensor& t) const {
    return *files.at(t.file).find(place_of(t.slice.name).key);
  }
  std::span<const uint8_t> bytes(const IndexTensor& t) const {
    return files.at(t.file).bytes(entry(t));
  }
};

bool has_prefix(const std::string& name, const std::string& prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

template <class Map>
void keep_prefix(Map& map, const std::string& prefix) {
  std::erase_if(map, [&](const auto& item) { return !has_prefix(item.first, prefix); });
}

SafetensorsFile open_file(const std::string& path, const IndexFile& expected) {
  std::error_code error;
  check<Corrupt>(fs::is_regular_file(path, error), "{} is missing", path);
  const auto size = fs::file_size(path, error);
  check<Corrupt>(!error && size == expected.size, "{} has {} bytes; the index says {}", path, size,
                 expected.size);
  SafetensorsFile file(path);
  const auto head = file.head();
  check<Corrupt>(Checksum::of(head.data(), head.size()) == expected.head,
                 "{}: the checksum of its header does not fit", path);
  return file;
}

Opened open_checkpoint(const std::string& folder, const std::string& prefix) {
  Opened opened{folder, {}, {}};
  const std::string path = folder + "/" + CheckpointIndex::kFileName;
  std::error_code error;
  check<Corrupt>(fs::is_regular_file(path, error), "{} is missing", path);
  opened.index = parse_index(read_file(path, size_t{1} << 28), path);
  auto& index = opened.index;
  const int64_t named = step_of_folder(folder);
  check<Corrupt>(named < 0 || named == index.step, "{} holds step {}: was the folder renamed?",
                 folder, index.step);

  std::set<std::string> needed;
  std::map<std::string, size_t> expected;
  for (const auto& [name, t] : index.tensors) {
    ++expected[t.file];
    if (has_prefix(name, prefix)) needed.insert(t.file);
  }
  for (const auto& [file, info] : index.files) {
    if (!prefix.empty() && !needed.count(file)) continue;
    const auto& opened_file =
        opened.files.emplace(file, open_file(folder + "/" + file, info)).first->second;
    check<Corrupt>(opened_file.entries().size() == expected[file],
                   "{}: has {} tensors; the index says {}", opened_file.path(),
                   opened_file.entries().size(), expected[file]);
  }
  keep_prefix(index.tensors, prefix);
  keep_prefix(index.values, prefix);
  for (const auto& [name, t] : index.tensors) {
    const auto& file = opened.files.at(t.file);
    const auto* entry = file.find(place_of(name).key);
    check<Corrupt>(
        entry && entry->shape == t.slice.lengths && safetensors_dtype_name(entry->dtype) == t.dtype,
        "{}: tensor '{}' is missing or not as the index says", file.path(), place_of(name).key);
  }
  return opened;
}

void verify_tensors(const Opened& opened) {
  for (const auto& [name, t] : opened.index.tensors) {
    const auto bytes = opened.bytes(t);
    check<Corrupt>(Checksum::of(bytes.data(), bytes.size()) == t.xxh3,
                   "{}/{}: the checksum of tensor '{}' does not fit", opened.folder, t.file,
                   place_of(name).key);
  }
}

constexpr const char* kTypeNames[] = {"int", "double", "string"};

// First walk: does the state ask for exactly what the checkpoint holds? Writes nothing.
class Comparer : public StateVisitor {
 public:
  explicit Comparer(const Opened& opened) : opened_(opened) {}
  void tensor(const Slice& slice, at::Tensor local) override {
    take_name(slice.name);
    auto found = opened_.index.tensors.find(slice.name);
    check<UsageError>(found != opened_.index.tensors.end(),
                      "{} has no tensor '{}', which this state asks for: is it of "
                      "another model or optimizer?",
                      opened_.folder, slice.name);
    const auto& saved = found->second;
    check<UsageError>(slice.global_shape == saved.slice.global_shape,
                      "{}: tensor '{}' has shape {} there and {} here: is it of another model?",
                      opened_.folder, slice.name, text_of(saved.slice.global_shape),
                      text_of(slice.global_shape));
    check<UsageError>(slice.is_whole() && local.defined() && local.numel() == slice.numel(),
                      "load: '{}' is a part of a tensor, or its memory is not of its shape",
                      slice.name);
    check<UsageError>(safetensors_dtype_name(local.scalar_type()) == saved.dtype,
                      "{}: tensor '{}' is {} there and {} here", opened_.folder, slice.name,
                      saved.dtype, c10::toString(local.scalar_type()));
  }
  void value(const std::string& name, int64_t&) override { compare(name, 0); }
  void value(const std::string& name, double&) override { compare(name, 1); }
  void value(const std::string& name, std::string&) override { compare(name, 2); }

  void finish() const {
    for (const auto& [name, t] : opened_.index.tensors)
      check<UsageError>(
          seen_.count(name),
          "{} holds tensor '{}', which this state does not know: is it of another model "
          "or optimizer?",
          opened_.folder, name);
    for (const auto& [name, v] : opened_.index.values)
      check<UsageError>(seen_.count(name),
                        "{} holds the value '{}', which this state does not know", opened_.folder,
                        name);
  }

 private:
  void take_name(const std::string& name) {
    check<UsageError>(seen_.insert(name).second, "load: the state names '{}' twice", name);
  }
  void compare(const std::string& name, size_t type) {
    take_name(name);
    auto found = opened_.index.values.find(name);
    check<UsageError>(found != opened_.index.values.end(),
                      "{} has no value '{}', which this state asks for", opened_.folder, name);
    check<UsageError>(found->second.index() == type,
                      "{}: the value '{}' is of type {} there and {} here", opened_.folder, name,
                      kTypeNames[found->second.index()], kTypeNames[type]);
  }

  const Opened& opened_;
  std::set<std::string> seen_;
};

// Second walk: everything fits, now it is written.
class Loader : public StateVisitor {
 public:
  explicit Loader(const Opened& opened) : opened_(opened) {}
  void tensor(const Slice& slice, at::Tensor local) override {
    const auto bytes = opened_.bytes(opened_.index.tensors.at(slice.name));
    check<UsageError>(local.nbytes() == bytes.size(), "load: '{}' changed between two walks",
                      slice.name);
    if (bytes.empty()) return;
    if (local.is_cpu() && local.is_contiguous()) {
      std::memcpy(local.data_ptr(), bytes.data(), bytes.size());
      if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
      return;
    }
    at::Tensor staged = at::detail::empty_cpu(local.sizes(), local.scalar_type());
    std::memcpy(staged.data_ptr(), bytes.data(), bytes.size());
    local.copy_(staged);
  }
  void value(const std::string& name, int64_t& v) override {
    v = std::get<int64_t>(opened_.index.values.at(name));
  }
  void value(const std::string& name, double& v) override {
    v = std::get<double>(opened_.index.values.at(name));
  }
  void value(const std::string& name, std::string& v) override {
    v = std::get<std::string>(opened_.index.values.at(name));
  }

 private:
  const Opened& opened_;
};

// What to use instead of a damaged checkpoint.
std::string advice(const std::string& folder) {
  const int64_t step = step_of_folder(folder);
  if (step < 0) return "";
  const fs::path parent = fs::path(folder).parent_path();
  const std::string run_dir = parent.empty() ? "." : parent.string();
  const auto steps = list_steps(run_dir);
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    if (*it >= step) continue;
    const std::string candidate = run_dir + "/" + step_folder_name(*it);
    try {
      verify_checkpoint(candidate);
      return fmt::format(
          ". The newest good checkpoint before it is {}: give that path to continue from it",
          candidate);
    } catch (const Error&) {
    }
  }
  return fmt::format(". There is no good checkpoint before it in {}", run_dir);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                         const LoadOptions& options) {
  Span span("checkpoint", "load");
  const std::string folder = without_slashes(find_checkpoint(without_slashes(path)));
  try {
    const Opened opened = open_checkpoint(folder, options.prefix);
    Comparer comparer(opened);
    walk(comparer);
    comparer.finish();
    verify_tensors(opened);
    c10::AutoGradMode no_grad(false);
    Loader loader(opened);
    walk(loader);
    return {folder, opened.index.step, opened.index.world};
  } catch (const Corrupt& e) {
    throw Corrupt(e.what() + advice(folder));
  }
}

CheckpointInfo verify_checkpoint(const std::string& folder) {
  const Opened opened = open_checkpoint(without_slashes(folder), "");
  verify_tensors(opened);
  return {opened.folder, opened.index.step, opened.index.world};
}

}  // namespace trireme
