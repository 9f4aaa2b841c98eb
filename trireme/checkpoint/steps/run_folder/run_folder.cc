// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme {
namespace {

// What a saver does beside making its step: it may fail without harm, and is tried again by the
// next.
template <class Body>
void tidy(const char* what, const Body& body) {
  try {
    body();
  } catch (const ResourceError& e) {
    log_warn("{}: {}", what, e.what());
  }
}

/// On its way to a name (step_links.cc), and not by this process.
bool is_link_of_the_dead(const std::string& name) {
  return name.starts_with(".tmp-link-") && !name.ends_with(fmt::format("-{}", ::getpid()));
}

void remove_temporaries(const std::string& run_dir) {
  for (const std::string& name : list_folder(run_dir)) {
    if (!name.starts_with(".tmp-step-") && !is_link_of_the_dead(name) &&
        !name.starts_with("latest.tmp.") &&
        !name.starts_with(std::string(SaverLock::kFileName) + "."))
      continue;
    const std::string path = run_dir + "/" + name;
    if (const std::string step = step_put_aside(run_dir, name); !step.empty()) {
      const std::string back = run_dir + "/" + step;
      if (file_calls::rename(path, back) != 0)
        fail<ResourceError>("cannot rename {} to {}: {}", path, back, errno_text());
    } else {
      remove_tree(path);
    }
  }
}

std::string temporary_name(int64_t step, const char* why) {
  std::random_device random;
  return fmt::format(".tmp-{}-{}-{}-{:08x}", step_folder_name(step), why, ::getpid(), random());
}

void retire(const std::string& run_dir, const std::vector<int64_t>& steps) {
  for (const std::string& hidden : hide_steps(run_dir, steps)) remove_tree(hidden);
}

}  // namespace

StepDraft::StepDraft(const std::string& run_dir, int64_t step, Duration patience,
                     GenerationFence fence)
    : run_dir_(run_dir),
      step_(step),
      fence_(std::move(fence)),
      name_(temporary_name(step, "new")),
      aside_(run_dir + "/" + temporary_name(step, kPutAside)) {
  try {
    make_folders(run_dir);
  } catch (const ResourceError& e) {
    fail<ResourceError>("cannot make the run folder {}: {}", run_dir, e.what());
  }
  lock(patience);
  tidy("what dead runs left could not be removed", [&] { remove_temporaries(run_dir); });
  if (file_calls::mkdir(folder(), 0777) != 0)
    fail<ResourceError>("cannot make {}: {}", folder(), errno_text());
}

StepDraft::~StepDraft() {
  // After publishing there is nothing, or the step that was replaced.
  tidy("a temporary folder could not be removed", [&] { remove_tree(folder()); });
}

void StepDraft::lock(Duration patience) {
  using std::chrono::milliseconds;
  const Deadline deadline = Deadline::after(patience);
  std::string holder;
  for (Duration pause = milliseconds(1);; pause = std::min<Duration>(2 * pause, milliseconds(50))) {
    holder.clear();
    lock_ = SaverLock::try_take(run_dir_, &holder);
    if (lock_ || holder == SaverLock::kThisProcess || deadline.expired()) break;
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
  }
  check<ResourceError>(lock_.has_value() || holder != SaverLock::kThisProcess,
                       "{} is saving a checkpoint in {}: save all that belongs to the run with one "
                       "saver, or give each saver a folder of its own",
                       holder, run_dir_);
  check<ResourceError>(
      lock_.has_value(),
      "another process is saving a checkpoint in {}{}, or prunes it or imports into it, and has "
      "not "
      "finished within {:g} s: give each run a folder of its own (--run-dir), and import into a "
      "folder in which no run saves",
      run_dir_, holder.empty() ? "" : " (" + holder + ")",
      std::chrono::duration<double>(patience).count());
}

// A step that stands there already (a run resumed from an earlier one) changes places with the new
// one; where the file system cannot exchange, it steps aside first.
void StepDraft::publish() {
  lock_->check_ours();
  fence_.check();
  const std::string temporary = folder(), final_path = run_dir_ + "/" + step_folder_name(step_);
  int error = failpoint("checkpoint.before_publish");
  if (!error) {
    if (file_calls::rename(temporary, final_path) == 0) return;
    error = errno;
  }
  if (error == EEXIST || error == ENOTEMPTY) {
    if (file_calls::exchange(temporary, final_path) == 0) return;
    error = 0;
    if (file_calls::rename(final_path, aside_) != 0) error = errno;
    if (!error && file_calls::rename(temporary, final_path) == 0) return;
    if (!error) {
      error = errno;
      file_calls::rename(aside_, final_path);
    }
  }
  fail<ResourceError>("cannot publish {}: {}", final_path, errno_text(error));
}

void StepDraft::settle(int keep) {
  fsync_path(run_dir_);
  failpoint("checkpoint.after_publish");
  fence_.check();  // this process may have stood still since
  write_file_atomic(run_dir_ + "/latest", step_folder_name(step_) + "\n");

  tidy("old checkpoints could not be deleted", [&] {
    remove_tree(folder());  // the replaced one, after an exchange
    remove_tree(aside_);
    std::vector<SavedStep> steps;
    for (int64_t step : list_steps(run_dir_)) steps.push_back({step});
    retire(run_dir_, steps_to_delete(steps, step_, {.keep = keep}));
  });
}

void prune_steps(const std::string& run_dir, const std::vector<SavedStep>& steps, int64_t current,
                 const RetentionRule& rule) {
  tidy("old checkpoints could not be deleted", [&] {
    // A process that has the lock deletes as well, or is followed by the next saver.
    if (const auto lock = SaverLock::try_take(run_dir))
      retire(run_dir, steps_to_delete(steps, current, rule));
  });
}

// First out of sight, then away: a half-deleted checkpoint never bears a step's name, also where a
// disk that lost its power kept what was deleted in it and not its new name.
std::vector<std::string> hide_steps(const std::string& run_dir, const std::vector<int64_t>& steps) {
  std::vector<std::string> hidden;
  for (int64_t step : steps) {
    const std::string path = run_dir + "/" + step_folder_name(step);
    hidden.push_back(run_dir + "/" + temporary_name(step, "gone"));
    if (file_calls::rename(path, hidden.back()) != 0)
      fail<ResourceError>("cannot rename {} to {}: {}", path, hidden.back(), errno_text());
  }
  if (!hidden.empty()) fsync_path(run_dir);
  return hidden;
}

std::string space_text(const std::string& run_dir, uint64_t needed, std::string_view what) {
  struct statvfs v {};
  if (file_calls::statvfs(run_dir, &v) != 0) return "";
  return fmt::format(" {} needs {} bytes, the disk has {} free.", what, needed,
                     static_cast<uint64_t>(v.f_bavail) * v.f_frsize);
}

}  // namespace trireme
