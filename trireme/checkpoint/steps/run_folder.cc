// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/folders.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

void remove_temporaries(const std::string& run_dir) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".tmp-step-") || name.starts_with("latest.tmp."))
      found.push_back(it->path());
  }
  for (const auto& path : found) fs::remove_all(path, error);
}

std::string temporary_name(int64_t step, const char* why) {
  std::random_device random;
  return fmt::format(".tmp-{}-{}-{}-{:08x}", step_folder_name(step), why, ::getpid(), random());
}

// First out of sight, then away: a half-deleted checkpoint never bears a step's name.
void retire(const std::string& run_dir, int64_t step) {
  const std::string path = run_dir + "/" + step_folder_name(step);
  const std::string aside = run_dir + "/" + temporary_name(step, "old");
  std::error_code error;
  fs::rename(path, aside, error);
  if (!error) fs::remove_all(aside, error);
  if (error) log_warn("the old checkpoint {} could not be deleted: {}", path, error.message());
}

}  // namespace

StepDraft::StepDraft(const std::string& run_dir, int64_t step)
    : run_dir_(run_dir),
      step_(step),
      name_(temporary_name(step, "new")),
      aside_(run_dir + "/" + temporary_name(step, "old")) {
  std::error_code error;
  const bool made = fs::create_directories(run_dir, error);
  check<ResourceError>(!error, "cannot make the run folder {}: {}", run_dir, error.message());
  if (made) fsync_path(run_dir + "/..");
  lock();
  remove_temporaries(run_dir);
  if (::mkdir(folder().c_str(), 0777) != 0)
    fail<ResourceError>("cannot make {}: {}", folder(), errno_text());
}

StepDraft::~StepDraft() {
  std::error_code ignored;  // after publishing there is nothing, or the step that was replaced
  fs::remove_all(folder(), ignored);
}

std::optional<UniqueFd> try_lock_run_folder(const std::string& run_dir) {
  UniqueFd lock(::open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check<ResourceError>(static_cast<bool>(lock), "cannot open {}: {}", run_dir, errno_text());
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return lock;
}

void StepDraft::lock() {
  auto lock = try_lock_run_folder(run_dir_);
  check<ResourceError>(lock.has_value(),
                       "another process is saving a checkpoint in {}: give each run a folder of "
                       "its own (--run-dir)",
                       run_dir_);
  lock_ = std::move(*lock);
}

// A step that stands there already (a run resumed from an earlier one) changes places with the new
// one; where the file system cannot exchange, it steps aside first.
void StepDraft::publish() {
  const std::string temporary = folder(), final_path = run_dir_ + "/" + step_folder_name(step_);
  int error = failpoint("checkpoint.before_publish");
  if (!error) {
    if (::rename(temporary.c_str(), final_path.c_str()) == 0) return;
    error = errno;
  }
  if (error == EEXIST || error == ENOTEMPTY) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) ==
        0)
      return;
    error = 0;
    if (::rename(final_path.c_str(), aside_.c_str()) != 0) error = errno;
    if (!error && ::rename(temporary.c_str(), final_path.c_str()) == 0) return;
    if (!error) {
      error = errno;
      ::rename(aside_.c_str(), final_path.c_str());
    }
  }
  fail<ResourceError>("cannot publish {}: {}", final_path, errno_text(error));
}

void StepDraft::settle(int keep) {
  fsync_path(run_dir_);
  failpoint("checkpoint.after_publish");
  write_file_atomic(run_dir_ + "/latest", step_folder_name(step_) + "\n");

  std::error_code error;
  fs::remove_all(folder(), error);  // the replaced one, after an exchange
  fs::remove_all(aside_, error);
  auto steps = list_steps(run_dir_);
  int kept = 1;
  for (auto it = steps.rbegin(); it != steps.rend(); ++it)
    if (*it < step_ && ++kept > keep) retire(run_dir_, *it);
}

std::string hide_step(const std::string& run_dir, int64_t step) {
  const std::string path = run_dir + "/" + step_folder_name(step);
  const std::string hidden = run_dir + "/" + temporary_name(step, "gone");
  if (::rename(path.c_str(), hidden.c_str()) != 0)
    fail<ResourceError>("cannot delete {}: {}", path, errno_text());
  return hidden;
}

std::string space_text(const std::string& run_dir, uint64_t needed) {
  struct statvfs v {};
  if (::statvfs(run_dir.c_str(), &v) != 0) return "";
  return fmt::format(" The checkpoint needs {} bytes, the disk has {} free.", needed,
                     static_cast<uint64_t>(v.f_bavail) * v.f_frsize);
}

}  // namespace trireme
