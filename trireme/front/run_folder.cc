// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/run_folder.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"
#include "trireme/config/recorded.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostConfigBytes = size_t{16} << 20;

bool is_step_name(const std::string& name) {
  return name.size() >= 13 && name.rfind("step-", 0) == 0 &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

/// What a start with --resume auto set aside (checkpoint/steps/run_folder/newest_good.h).
bool is_damaged_step(const std::string& name) { return name.rfind("damaged-step-", 0) == 0; }

/// Metrics that a run which began anew has set aside (monitor/metrics.h).
bool is_old_metrics(const std::string& name) {
  return name.starts_with("metrics-old-") && name.ends_with(".jsonl");
}

// Workers of a node that was cut off have half a minute to save, and need seconds to know it.
constexpr Duration kPredecessorEnds = std::chrono::seconds(60);

/// What trireme writes in a run folder beside config.json, metrics.jsonl, steps and their names.
bool is_run_file(const std::string& name) {
  return name == "log.jsonl" || name == "latest" || name == "flight" ||
         name.rfind(".tmp-step-", 0) == 0 || name.rfind(".tmp-link-", 0) == 0 ||
         name.rfind("latest.tmp.", 0) == 0 || name.rfind("config.json.tmp.", 0) == 0 ||
         is_damaged_step(name) || is_old_metrics(name);
}

/// A name of one of the run's steps (checkpoint.names). Of another run it would keep a step that
/// has the same number by chance.
bool names_a_step(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return !error && is_step_name(target.string());
}

nlohmann::json read_config(const std::string& folder) {
  try {
    return nlohmann::json::parse(read_file(folder + "/config.json", kMostConfigBytes), nullptr,
                                 /*allow_exceptions=*/false, /*ignore_comments=*/true);
  } catch (const Error&) {
    return nlohmann::json(nlohmann::json::value_t::discarded);
  }
}

bool is_resolved_config(const std::string& folder) {
  const auto json = read_config(folder);
  return json.is_object() && json.contains("_origins");
}

bool is_start_line(const std::string& line) { return line.rfind("{\"event\":\"start\"", 0) == 0; }

struct MetricsFound {
  bool ours = false, steps = false;
};

MetricsFound look_at_metrics(const std::string& path) {
  MetricsFound found;
  // A named pipe would keep who opens it waiting.
  if (path_kind(path) != PathKind::file) return found;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  for (int lines = 0; lines < 1000 && std::getline(file, line); ++lines) {
    if (lines == 0) found.ours = is_start_line(line);
    if (!found.ours) return found;
    if (!is_start_line(line)) {
      found.steps = true;
      return found;
    }
  }
  return found;
}

std::string absolute_path(const std::string& path) {
  fs::path p = fs::absolute(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  return p.string();
}

/// Removes `folder` and then its parents as far as `made`, as long as they are empty.
void remove_empty(std::string folder, const std::string& made) {
  while (!made.empty() && folder.size() >= made.size() && file_calls::rmdir(folder) == 0)
    folder = fs::path(folder).parent_path().string();
}

}  // namespace

std::string runs_of(const std::string& config_file) {
  fs::path file = fs::path(config_file).lexically_normal();
  // A run's own config.json stands for the configuration that its folder is named after.
  const std::string name = file.filename() == "config.json" && file.parent_path().has_parent_path()
                               ? fs::absolute(file).parent_path().parent_path().filename().string()
                               : file.stem().string();
  return "runs/" + (name.empty() ? "run" : name);
}

std::string newest_run(const std::string& runs) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(runs, error))
    if (fs::exists(fs::path(steps_folder_of(entry.path().string())) / "latest", error))
      found.push_back(entry.path());
  check<UsageError>(!found.empty(),
                    "there is no run with a checkpoint in {} to resume: name one (--resume PATH), "
                    "or start without --resume",
                    runs);
  return std::max_element(found.begin(), found.end())->string();  // names are times
}

std::string newest_run_with_steps(const std::string& runs) {
  std::error_code error;
  std::string newest;
  for (const auto& run : fs::directory_iterator(runs, error)) {
    bool holds = false;
    for (const auto& entry : fs::directory_iterator(steps_folder_of(run.path().string()), error)) {
      const std::string name = entry.path().filename().string();
      holds |= is_step_name(name) || is_damaged_step(name);
    }
    if (holds) newest = std::max(newest, run.path().string());  // names are times
  }
  return newest;
}

std::string behind_link(const std::string& path) {
  fs::path link = fs::path(path).lexically_normal();
  if (!link.has_filename()) link = link.parent_path();
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error || !is_step_name(target.string())) return path;
  return (link.parent_path() / target).string();
}

std::string run_folder_of(const std::string& path) {
  fs::path p = fs::absolute(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  for (const fs::path& candidate : {p, p.parent_path()})
    if (fs::exists(candidate / "config.json")) return candidate.string();
  fail<UsageError>(
      "{} is neither the folder of a run (with a config.json) nor one of its step folders", path);
}

std::string steps_folder_of(const std::string& run_folder) {
  const std::string recorded = recorded_steps_folder(run_folder);
  return recorded.empty() ? run_folder : recorded;
}

bool has_steps(const std::string& folder) {
  std::error_code error;
  const FolderFound found = look_into(folder);
  return !found.steps.empty() || !found.damaged.empty() ||
         fs::exists(fs::path(folder) / "latest", error);
}

std::string steps_named_by(const std::string& path) {
  const std::string recorded = steps_folder_of(path);
  return recorded != path && has_steps(recorded) ? recorded : path;
}

std::optional<std::string> latest_beside(const std::string& path) {
  fs::path step(path);
  if (!step.has_filename()) step = step.parent_path();
  if (!is_step_name(step.filename().string())) return std::nullopt;
  try {
    return read_file((step.parent_path() / "latest").string(), kMostConfigBytes);
  } catch (const Error&) {
    return "-";
  }
}

FolderFound look_into(const std::string& folder) {
  FolderFound found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (is_step_name(name) && fs::exists(it->path() / "trireme.index.json", ignored))
      found.steps.push_back(name);
    else if (is_damaged_step(name))
      found.damaged.push_back(name);
    else if (is_old_metrics(name))
      found.has_metrics = true;
    else if (!name.starts_with(launch::kRunLockName) &&
             !name.starts_with(launch::kRunGenerationName) && name != "config.json" &&
             name != "metrics.jsonl")
      found.has_other = true;
  }
  std::sort(found.steps.begin(), found.steps.end());
  if (fs::exists(folder + "/config.json", error)) {
    if (is_resolved_config(folder))
      found.is_run = true;
    else
      found.foreign = "config.json";
  }
  if (fs::exists(folder + "/metrics.jsonl", error)) {
    const MetricsFound metrics = look_at_metrics(folder + "/metrics.jsonl");
    const bool empty = fs::file_size(folder + "/metrics.jsonl", error) == 0;
    found.is_run |= metrics.ours;
    found.has_metrics |= metrics.steps;
    if (!metrics.ours && !empty) found.foreign = "metrics.jsonl";
  }
  return found;
}

std::string refusal_of(const FolderFound& found, FolderUse use, const std::string& folder) {
  if (use == FolderUse::resume) return "";
  if (!found.foreign.empty())
    return fmt::format(
        "{}/{} is not a file that trireme wrote, and a run would write over it: choose another "
        "--run-dir",
        folder, found.foreign);
  if (use == FolderUse::resume_or_begin) return "";
  const bool holds = !found.steps.empty() || !found.damaged.empty() || found.has_metrics;
  if (use == FolderUse::fresh && holds)
    return fmt::format(
        "{} holds a run already ({}): --resume --run-dir {} goes on with it, --overwrite deletes "
        "it and begins anew; or choose another --run-dir",
        folder,
        found.steps.empty() && found.has_metrics ? "its metrics"
        : found.steps.empty()                    ? "damaged checkpoints"
                              : fmt::format("{} checkpoint{}, the newest {}", found.steps.size(),
                                            found.steps.size() == 1 ? "" : "s", found.steps.back()),
        folder);
  if (use == FolderUse::overwrite && !found.is_run && (holds || found.has_other))
    return fmt::format(
        "{} is not the folder of a run (no config.json or metrics.jsonl in it is trireme's): "
        "--overwrite deletes a run and nothing else. Choose another --run-dir{}",
        folder, holds ? "" : ", or leave --overwrite out");
  return "";
}

void delete_run(const std::string& folder) {
  std::vector<fs::path> ours;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (is_run_file(name) || names_a_step(it->path()) ||
        (is_step_name(name) && fs::exists(it->path() / "trireme.index.json", ignored)))
      ours.push_back(it->path());
  }
  for (const auto& path : ours) remove_tree(path.string());
  // These say whose folder it is: last, so that a deletion that was cut short can be repeated.
  if (look_at_metrics(folder + "/metrics.jsonl").ours) remove_tree(folder + "/metrics.jsonl");
  if (is_resolved_config(folder)) remove_tree(folder + "/config.json");
}

void RunFolder::make(const std::string& folder) {
  path_ = absolute_path(folder);
  fs::path missing = path_;
  std::error_code error;
  while (!fs::exists(missing, error) && missing.has_parent_path() &&
         missing != missing.parent_path()) {
    made_ = missing.string();
    missing = missing.parent_path();
  }
  try {
    make_folders(path_);
  } catch (const ResourceError& e) {
    for (fs::path p = path_; !made_.empty() && p.string().size() >= made_.size();
         p = p.parent_path())
      file_calls::rmdir(p.string());
    fail<ResourceError>("cannot make the folder {}: {}", path_, e.what());
  }
}

void RunFolder::take(const ClaimOptions& options) {
  try {
    launch::RunLockOptions lock{.take_over = options.take_over};
    lock.after_predecessor = options.after_predecessor;
    if (lock.after_predecessor) lock.patience = kPredecessorEnds;
    lock_.emplace(path_, lock);
  } catch (...) {
    remove_empty(path_, made_);
    throw;
  }
}

RunFolder::RunFolder(const std::string& folder, const ClaimOptions& options) {
  make(folder);
  take(options);
  try {
    const FolderFound found = look_into(path_);
    const std::string refusal = refusal_of(found, options.use, folder);
    check<UsageError>(refusal.empty(), "{}", refusal);
    was_there_ = options.use == FolderUse::resume ||
                 (options.use == FolderUse::resume_or_begin && found.is_run);
    if (options.use == FolderUse::overwrite && found.is_run) {
      delete_run(path_);
      log_info("deleted the run that was in {}", path_);
    }
  } catch (...) {
    lock_.reset();
    remove_empty(path_, made_);
    throw;
  }
}

RunFolder RunFolder::fresh_below(const std::string& runs) {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  ::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  RunFolder folder;
  folder.make(runs);
  const std::string base = folder.path_ + "/" + text;
  std::string path = base;
  for (int i = 2; file_calls::mkdir(path, 0777) != 0; ++i) {
    if (errno != EEXIST) {
      const int code = errno;
      remove_empty(folder.path_, folder.made_);
      fail<ResourceError>("cannot make the folder {}: {}", path, errno_text(code));
    }
    path = base + "-" + std::to_string(i);
  }
  if (folder.made_.empty()) folder.made_ = path;
  folder.path_ = path;
  folder.take({});
  return folder;
}

RunFolder RunFolder::for_steps(const std::string& path, const ClaimOptions& options,
                               bool are_the_old_runs) {
  RunFolder folder;
  folder.make(path);
  folder.take(options);
  try {
    const FolderFound found = look_into(folder.path_);
    std::vector<std::string> steps = found.steps;
    steps.insert(steps.end(), found.damaged.begin(), found.damaged.end());
    const bool goes_on =
        options.use == FolderUse::resume || options.use == FolderUse::resume_or_begin;
    if (goes_on || steps.empty()) return folder;
    check<UsageError>(options.use == FolderUse::overwrite && are_the_old_runs,
                      "checkpoint.folder {} holds checkpoints of another run (the newest is {}), "
                      "which this one would delete: name another folder, or go on with that run "
                      "(--resume)",
                      path, steps.back());
    for (const auto& step : steps) remove_tree(folder.path_ + "/" + step);
    remove_tree(folder.path_ + "/latest");
  } catch (...) {
    folder.lock_.reset();
    remove_empty(folder.path_, folder.made_);
    throw;
  }
  return folder;
}

void RunFolder::remove_unbegun() {
  lock_.reset();
  if (!was_there_) remove_unbegun_run(path_, made_);
}

void remove_unbegun_run(const std::string& folder, const std::string& made) {
  const FolderFound found = look_into(folder);
  const bool begun = !found.steps.empty() || !found.damaged.empty() || found.has_metrics;
  if (begun || !found.foreign.empty()) return;
  if (found.is_run || !made.empty())
    for (const char* name : {"/metrics.jsonl", "/config.json", "/log.jsonl"})
      file_calls::unlink(folder + name);
  remove_empty(folder, made);
}

}  // namespace trireme
