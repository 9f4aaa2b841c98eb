// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/newest_good.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDamaged = "damaged-";

// A saver never shows a step without its index; somebody's empty folder is no lost work.
bool was_a_step(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error) || !fs::is_directory(folder, error)) return false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == CheckpointIndex::kFileName || it->path().extension() == ".safetensors") return true;
  }
  return false;
}

struct Found {
  std::vector<int64_t> steps;  // in the order in which they are tried
  int damaged = 0;             // set aside before
};

/// -1: there is no such file, or it names no step.
int64_t step_of_latest(const std::string& run_dir) {
  try {
    std::string name = read_file(run_dir + "/latest", 4096);
    if (!name.empty() && name.back() == '\n') name.pop_back();
    return name.starts_with("step-") ? step_of_folder(name) : -1;
  } catch (const ResourceError&) {
    return -1;
  }
}

// Steps that had stepped aside for new ones when their saver was killed get their names back.
void put_back(const std::string& run_dir) {
  std::error_code error;
  std::vector<std::pair<fs::path, std::string>> aside;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error))
    if (auto step = step_put_aside(run_dir, it->path().filename().string()); !step.empty())
      aside.emplace_back(it->path(), run_dir + "/" + step);
  for (const auto& [from, to] : aside) {
    fs::rename(from, to, error);
    check<ResourceError>(!error, "cannot rename {} to {}: {}", from.string(), to, error.message());
  }
}

Found look_through(const std::string& run_dir) {
  put_back(run_dir);
  Found found;
  std::error_code error;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(std::string(kDamaged) + "step-")) ++found.damaged;
    const int64_t step = step_of_folder(name);
    if (step >= 0 && was_a_step(it->path())) found.steps.push_back(step);
  }
  check<ResourceError>(!error || error == std::errc::no_such_file_or_directory,
                       "cannot look into {}: {}", run_dir, error.message());
  // Steps behind `latest` are of a run that another one, from an earlier step, has replaced.
  const int64_t latest = step_of_latest(run_dir);
  const bool known = std::find(found.steps.begin(), found.steps.end(), latest) != found.steps.end();
  std::sort(found.steps.begin(), found.steps.end(), [&](int64_t a, int64_t b) {
    const bool a_behind = known && a > latest, b_behind = known && b > latest;
    return a_behind != b_behind ? b_behind : a > b;
  });
  return found;
}

/// Where a step goes that is damaged. One may be there from an earlier time.
std::string place_aside(const std::string& run_dir, int64_t step) {
  const std::string base = run_dir + "/" + kDamaged + step_folder_name(step);
  std::string place = base;
  std::error_code error;
  for (int i = 2; fs::exists(fs::symlink_status(place, error)); ++i)
    place = base + "-" + std::to_string(i);
  return place;
}

void set_aside(const std::string& run_dir, int64_t step, const std::string& why) {
  const std::string folder = run_dir + "/" + step_folder_name(step);
  const std::string place = place_aside(run_dir, step);
  std::error_code error;
  fs::rename(folder, place, error);
  check<ResourceError>(!error, "{} is damaged ({}), and cannot be renamed to {}: {}", folder, why,
                       place, error.message());
  log_warn("{} is damaged and is now called {}: {}", folder, fs::path(place).filename().string(),
           why);
}

/// Of the steps that would be tried next: the first that is whole, as advice. A person decides to
/// take it: a file system that comes back in a minute is no reason to give up work.
std::string older_step(const std::string& run_dir, std::span<const int64_t> steps) {
  for (int64_t step : steps) {
    const std::string folder = run_dir + "/" + step_folder_name(step);
    if (verify_step(folder).good())
      return fmt::format("or give up what came after step {} with --resume {}", step, folder);
  }
  return "no older step that could be read is whole";
}

/// "" where the step is whole; else what is wrong with it. A disk that does not give its bytes says
/// nothing about them. `older`: what would be tried after it.
std::string damage_of(const std::string& run_dir, int64_t step, std::span<const int64_t> older) {
  const StepVerdict verdict = verify_step(run_dir + "/" + step_folder_name(step));
  if (const StepFault* unread = verdict.unread())
    fail<ResourceError>(
        "{}. The disk or its file system failed, which does not show that the checkpoint is "
        "damaged: nothing was renamed. See to the disk and start again, {}",
        unread->what, older_step(run_dir, older));
  return verdict.good() ? "" : verdict.faults.front().what;
}

}  // namespace

std::string newest_good_step(const std::string& run_dir) {
  const Found found = look_through(run_dir);
  std::string good;
  int damaged = found.damaged;
  for (auto it = found.steps.begin(); it != found.steps.end() && good.empty(); ++it) {
    const std::string folder = run_dir + "/" + step_folder_name(*it);
    const std::string why = damage_of(run_dir, *it, {it + 1, found.steps.end()});
    if (why.empty()) {
      good = folder;
      if (step_of_latest(run_dir) != *it)
        write_file_atomic(run_dir + "/latest", step_folder_name(*it) + "\n");
    } else {
      set_aside(run_dir, *it, why);
      ++damaged;
    }
  }
  if (!good.empty() || damaged == 0) return good;
  std::error_code ignored;
  fs::remove(run_dir + "/latest", ignored);  // what it names is not called so any more
  fail<Corrupt>(
      "every checkpoint in {} is damaged ({} of them, called {}step-…): beginning anew would give "
      "up the run's work. Repair one and give it its name back, or move the run away, or begin "
      "anew with --overwrite",
      run_dir, damaged, kDamaged);
}

}  // namespace trireme
