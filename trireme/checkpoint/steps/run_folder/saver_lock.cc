// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/saver_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/saver_lock_file.h"

namespace trireme {
namespace {

/// Whether the lock on the folder was taken through another descriptor of this process. The kernel
/// says so ("lock: 1: FLOCK ADVISORY WRITE <pid> …"): nobody has to keep a list.
bool this_process_locked(int folder) {
  struct stat here {
  }, other{};
  if (::fstat(folder, &here) != 0) return false;
  for (const std::string& name : list_folder("/proc/self/fd")) {
    const int fd = std::atoi(name.c_str());
    if (fd == folder || ::fstat(fd, &other) != 0 || other.st_ino != here.st_ino ||
        other.st_dev != here.st_dev)
      continue;
    std::ifstream info("/proc/self/fdinfo/" + name);
    std::string word, number, kind, how, mode;
    pid_t pid = 0;
    for (std::string line; std::getline(info, line);) {
      std::istringstream words(line);
      if (words >> word >> number >> kind >> how >> mode >> pid && word == "lock:" &&
          kind == "FLOCK" && pid == ::getpid())
        return true;
    }
  }
  return false;
}

}  // namespace

class SaverLock::Holding {
 public:
  explicit Holding(UniqueFd folder) : folder_(std::move(folder)) {}
  explicit Holding(std::unique_ptr<LockFile> file) : file_(std::move(file)) {}
  void check_ours() const {
    if (file_) file_->check_ours();
  }

 private:
  UniqueFd folder_;
  std::unique_ptr<LockFile> file_;
};

SaverLock::SaverLock(std::unique_ptr<Holding> holding) : holding_(std::move(holding)) {}
SaverLock::SaverLock(SaverLock&&) noexcept = default;
SaverLock& SaverLock::operator=(SaverLock&&) noexcept = default;
SaverLock::~SaverLock() = default;

void SaverLock::check_ours() const { holding_->check_ours(); }

std::optional<SaverLock> SaverLock::try_take(const std::string& run_dir, std::string* holder,
                                             const Times& times) {
  UniqueFd folder(file_calls::open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check<ResourceError>(static_cast<bool>(folder), "cannot open {}: {}", run_dir, errno_text());
  const std::string path = run_dir + "/" + kFileName;
  if (file_calls::flock(folder.get(), LOCK_EX | LOCK_NB) == 0) {
    // Who came to the folder another way may have had no locks.
    if (!saver_lock_file_is_free(path, times.silence, holder)) return {};
    return SaverLock(std::make_unique<Holding>(std::move(folder)));
  }
  if (errno == EWOULDBLOCK) {
    if (holder && this_process_locked(folder.get())) *holder = kThisProcess;
    return {};
  }
  auto file = take_saver_lock_file(path, times.beat, times.silence, holder);
  if (!file) return {};
  return SaverLock(std::make_unique<Holding>(std::move(file)));
}

}  // namespace trireme
