// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/folders.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/index.h"

namespace trireme {

namespace {

bool is_step_folder(const std::string& folder) {
  return path_kind(folder + "/" + CheckpointIndex::kFileName) == PathKind::file;
}

/// What somebody else wrote, for a message.
std::string printable(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string shown(text.substr(0, kMost));
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > kMost ? shown + "…" : shown;
}

}  // namespace

std::string step_folder_name(int64_t step) { return fmt::format("step-{:08}", step); }

int64_t step_of_name(std::string_view name) {
  constexpr std::string_view kBegin = "step-";
  if (!name.starts_with(kBegin)) return -1;
  const char *first = name.data() + kBegin.size(), *last = name.data() + name.size();
  int64_t step = -1;
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last && step >= 0 && step_folder_name(step) == name ? step
                                                                                            : -1;
}

int64_t step_of_folder(const std::string& folder) {
  std::string_view name = folder;
  while (name.size() > 1 && name.back() == '/') name.remove_suffix(1);
  if (auto slash = name.rfind('/'); slash != name.npos) name.remove_prefix(slash + 1);
  return step_of_name(name);
}

std::vector<int64_t> list_steps(const std::string& run_dir) {
  std::vector<int64_t> steps;
  for (const std::string& name : list_folder(run_dir)) {
    const int64_t step = step_of_folder(name);
    if (step >= 0 && is_step_folder(run_dir + "/" + name)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string step_put_aside(const std::string& run_dir, const std::string& name) {
  constexpr std::string_view kBegin = ".tmp-";
  const size_t end = name.find(fmt::format("-{}-", kPutAside));
  if (!name.starts_with(kBegin) || end == std::string::npos) return "";
  const std::string step = name.substr(kBegin.size(), end - kBegin.size());
  if (step_of_folder(step) < 0 || path_kind(run_dir + "/" + step) != PathKind::nothing) return "";
  return is_step_folder(run_dir + "/" + name) ? step : "";
}

bool holds_checkpoint(const std::string& run_dir) {
  for (const std::string& name : list_folder(run_dir))
    if (name == "latest" || !step_put_aside(run_dir, name).empty()) return true;
  return !list_steps(run_dir).empty();
}

std::string find_checkpoint(const std::string& path) {
  if (is_step_folder(path)) return path;
  check<UsageError>(path_kind(path) == PathKind::folder, "no checkpoint at {}: it is not a folder",
                    path);
  const auto steps = list_steps(path);
  const std::string latest = path + "/latest";
  if (path_kind(latest) != PathKind::nothing) {
    std::string name = read_file(latest, 4096);
    const bool is_whole = !name.empty() && name.back() == '\n';
    if (is_whole) name.pop_back();
    check<Corrupt>(is_whole && step_of_name(name) >= 0,
                   "{} does not hold the name of a step folder of this run: it says '{}'", latest,
                   printable(name));
    const std::string folder = path + "/" + name;
    if (path_kind(folder) == PathKind::nothing)
      for (const std::string& aside : list_folder(path))
        if (step_put_aside(path, aside) == name) return path + "/" + aside;
    check<Corrupt>(
        is_step_folder(folder), "{} names {}, which is not there or has no index; {}", latest, name,
        steps.empty()
            ? "there is no other checkpoint: bring it back, or remove that file to begin anew"
            : fmt::format("the newest that exists: {}/{}", path, step_folder_name(steps.back())));
    return folder;
  }
  int64_t newest = steps.empty() ? -1 : steps.back();
  std::string folder = path + "/" + step_folder_name(newest);
  for (const std::string& aside : list_folder(path))
    if (const int64_t step = step_of_folder(step_put_aside(path, aside)); step > newest)
      newest = step, folder = path + "/" + aside;
  check<UsageError>(newest >= 0,
                    "no checkpoint in {}: there is neither {} nor a step-… folder with one", path,
                    CheckpointIndex::kFileName);
  return folder;
}

std::string name_in_latest(const std::string& run_dir) {
  constexpr size_t kMost = 4096;
  const std::string path = run_dir + "/latest";
  uint64_t size = 0;
  if (path_kind(path, &size) != PathKind::file || size > kMost) return "";
  std::string name = read_file(path, kMost);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

template <class T>
static std::optional<T> value_in_step(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + CheckpointIndex::kFileName;
  try {
    const CheckpointIndex index = parse_index(read_file(path, size_t{1} << 28), path);
    const auto it = index.values.find(name);
    if (it == index.values.end() || !std::holds_alternative<T>(it->second)) return {};
    return std::get<T>(it->second);
  } catch (const Error&) {
    return {};
  }
}

std::optional<double> number_in_step(const std::string& folder, const std::string& name) {
  return value_in_step<double>(folder, name);
}

std::optional<int64_t> integer_in_step(const std::string& folder, const std::string& name) {
  return value_in_step<int64_t>(folder, name);
}

std::optional<std::string> text_in_step(const std::string& folder, const std::string& name) {
  return value_in_step<std::string>(folder, name);
}

}  // namespace trireme
