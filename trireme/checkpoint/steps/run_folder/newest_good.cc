// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/newest_good.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme {
namespace {

constexpr const char* kDamaged = "damaged-";

/// What has the name, a link not followed; 0: nothing.
mode_t kind_of_name(const std::string& path) {
  struct stat found {};
  if (file_calls::lstat(path, &found) == 0) return found.st_mode & S_IFMT;
  const int error = errno;
  check<ResourceError>(error == ENOENT || error == ENOTDIR, "cannot look at {}: {}", path,
                       errno_text(error));
  return 0;
}

// A saver never shows a step without its index; somebody's empty folder is no lost work.
// What cannot be looked at may be one: who tries to take it says why not.
bool was_a_step(const std::string& folder) {
  try {
    if (kind_of_name(folder) != S_IFDIR) return false;
    const std::vector<std::string> names = list_folder(folder);
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name == CheckpointIndex::kFileName || name.ends_with(".safetensors");
    });
  } catch (const ResourceError&) {
    return true;
  }
}

struct Found {
  std::vector<int64_t> steps;  // in the order in which they are tried
  int damaged = 0;             // set aside before
};

/// -1: there is no such file, or it names no step. A disk that does not say what it names is an
/// error: another step might be taken for it.
int64_t step_of_latest(const std::string& run_dir) { return step_of_name(name_in_latest(run_dir)); }

// Steps that had stepped aside for new ones when their saver was killed get their names back.
void put_back(const std::string& run_dir) {
  for (const std::string& name : list_folder(run_dir))
    if (const std::string step = step_put_aside(run_dir, name); !step.empty())
      if (const std::string from = run_dir + "/" + name, to = run_dir + "/" + step;
          file_calls::rename(from, to) != 0)
        fail<ResourceError>("cannot rename {} to {}: {}", from, to, errno_text());
}

Found look_through(const std::string& run_dir) {
  put_back(run_dir);
  Found found;
  for (const std::string& name : list_folder(run_dir)) {
    if (name.starts_with(std::string(kDamaged) + "step-")) ++found.damaged;
    const int64_t step = step_of_folder(name);
    if (step >= 0 && was_a_step(run_dir + "/" + name)) found.steps.push_back(step);
  }
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
  for (int i = 2; kind_of_name(place) != 0; ++i) place = base + "-" + std::to_string(i);
  return place;
}

void set_aside(const std::string& run_dir, int64_t step, const std::string& why) {
  const std::string folder = run_dir + "/" + step_folder_name(step);
  const std::string place = place_aside(run_dir, step);
  if (file_calls::rename(folder, place) != 0)
    fail<ResourceError>("{} is damaged ({}), and cannot be renamed to {}: {}", folder, why, place,
                        errno_text());
  log_warn("{} is damaged and is now called {}: {}", folder, place.substr(run_dir.size() + 1), why);
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
      if (step_of_latest(run_dir) != *it) {
        // A step behind the one that `latest` names is not looked at: renames come to the disk
        // first.
        fsync_path(run_dir);
        write_file_atomic(run_dir + "/latest", step_folder_name(*it) + "\n");
      }
    } else {
      set_aside(run_dir, *it, why);
      ++damaged;
    }
  }
  if (!good.empty()) return good;
  if (damaged == 0) {
    const int64_t latest = step_of_latest(run_dir);
    check<Corrupt>(latest < 0,
                   "{}/latest names {}, and there is no step in that folder: bring it back, or "
                   "remove that file to begin anew",
                   run_dir, step_folder_name(latest));
    return "";
  }
  file_calls::unlink(run_dir + "/latest");  // what it names is not called so any more
  fail<Corrupt>(
      "every checkpoint in {} is damaged ({} of them, called {}step-…): beginning anew would give "
      "up the run's work. Repair one and give it its name back, or move the run away, or begin "
      "anew with --overwrite",
      run_dir, damaged, kDamaged);
}

}  // namespace trireme
