// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder.h"

#include <time.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "trireme/base/check.h"

namespace trireme {

namespace fs = std::filesystem;

std::string runs_of(const std::string& config_file) {
  fs::path file = fs::path(config_file).lexically_normal();
  // A run's own config.json stands for the configuration that its folder is named after.
  const std::string name = file.filename() == "config.json" && file.parent_path().has_parent_path()
                               ? fs::absolute(file).parent_path().parent_path().filename().string()
                               : file.stem().string();
  return "runs/" + (name.empty() ? "run" : name);
}

std::string new_run_folder(const std::string& config_file) {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  ::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  const std::string base = runs_of(config_file) + "/" + text;
  std::string folder = base;
  for (int i = 2; fs::exists(folder); ++i) folder = base + "-" + std::to_string(i);
  return folder;
}

std::string newest_run(const std::string& runs) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(runs, error))
    if (fs::exists(entry.path() / "latest")) found.push_back(entry.path());
  check<UsageError>(!found.empty(),
                    "there is no run with a checkpoint in {} to resume: name one (--resume PATH), "
                    "or start without --resume",
                    runs);
  return std::max_element(found.begin(), found.end())->string();  // names are times
}

std::string run_folder_of(const std::string& path) {
  fs::path p = fs::absolute(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  for (const fs::path& candidate : {p, p.parent_path()})
    if (fs::exists(candidate / "config.json")) return candidate.string();
  fail<UsageError>(
      "{} is neither the folder of a run (with a config.json) nor one of its step folders", path);
}

void make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check<ResourceError>(!error, "cannot make the folder {}: {}", path, error.message());
}

}  // namespace trireme
