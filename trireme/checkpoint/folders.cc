// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/folders.h"

#include <algorithm>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/index.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

bool is_step_folder(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(folder) / CheckpointIndex::kFileName, ignored);
}

}  // namespace

std::string step_folder_name(int64_t step) { return fmt::format("step-{:08}", step); }

int64_t step_of_folder(const std::string& folder) {
  std::string name = folder;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  if (auto slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
  if (name.size() < 13 || name.size() > 23 || name.compare(0, 5, "step-") != 0) return -1;
  int64_t step = 0;
  for (size_t i = 5; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') return -1;
    step = step * 10 + (name[i] - '0');
  }
  return step_folder_name(step) == name ? step : -1;
}

std::vector<int64_t> list_steps(const std::string& run_dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    const int64_t step = step_of_folder(it->path().filename().string());
    if (step >= 0 && is_step_folder(it->path().string())) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string find_checkpoint(const std::string& path) {
  if (is_step_folder(path)) return path;
  std::error_code ignored;
  check<UsageError>(fs::is_directory(path, ignored), "no checkpoint at {}: it is not a folder",
                    path);
  const auto steps = list_steps(path);
  const std::string latest = path + "/latest";
  if (fs::exists(latest, ignored)) {
    std::string name = read_file(latest, 4096);
    check<Corrupt>(!name.empty() && name.back() == '\n' &&
                       step_of_folder(name.substr(0, name.size() - 1)) >= 0,
                   "{} does not hold the name of a step folder", latest);
    name.pop_back();
    const std::string folder = path + "/" + name;
    check<Corrupt>(
        is_step_folder(folder), "{} names {}, which is not there or has no index; {}", latest, name,
        steps.empty()
            ? "there is no other checkpoint"
            : fmt::format("the newest that exists: {}/{}", path, step_folder_name(steps.back())));
    return folder;
  }
  check<UsageError>(!steps.empty(),
                    "no checkpoint in {}: there is neither {} nor a step-… folder with one", path,
                    CheckpointIndex::kFileName);
  return path + "/" + step_folder_name(steps.back());
}

std::optional<double> number_in_step(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + CheckpointIndex::kFileName;
  try {
    const CheckpointIndex index = parse_index(read_file(path, size_t{1} << 28), path);
    const auto it = index.values.find(name);
    if (it == index.values.end() || !std::holds_alternative<double>(it->second)) return {};
    return std::get<double>(it->second);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace trireme
