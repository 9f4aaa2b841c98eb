// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"

namespace trireme {
namespace {

size_t share_of_limit() {
  constexpr rlim_t kLeast = 4, kMost = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeast;
  return static_cast<size_t>(std::clamp(limit.rlim_cur / 16, kLeast, kMost));
}

}  // namespace

OpenFiles::OpenFiles() : most_(share_of_limit()) {}

OpenFiles::Descriptor OpenFiles::find(const ReopenedFile* file) {
  std::lock_guard lock(mutex_);
  const auto found = by_file_.find(file);
  if (found == by_file_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->descriptor;
}

// Another thread may have opened the same file meanwhile: then that one is kept.
OpenFiles::Descriptor OpenFiles::keep(const ReopenedFile* file, UniqueFd fd) {
  const auto opened = std::make_shared<const UniqueFd>(std::move(fd));
  std::list<Entry> entry{{file, opened}}, closed;  // closed behind the lock
  std::lock_guard lock(mutex_);
  const auto [found, fresh] = by_file_.emplace(file, entry.begin());
  if (!fresh) return found->second->descriptor;
  entries_.splice(entries_.begin(), entry);
  if (entries_.size() > most_) {
    by_file_.erase(entries_.back().of);
    closed.splice(closed.begin(), entries_, std::prev(entries_.end()));
  }
  return opened;
}

bool OpenFiles::close_one() {
  Descriptor closed;
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return false;
  closed = std::move(entries_.back().descriptor);
  by_file_.erase(entries_.back().of);
  entries_.pop_back();
  return true;
}

void OpenFiles::forget(const ReopenedFile* file) {
  Descriptor closed;
  std::lock_guard lock(mutex_);
  const auto found = by_file_.find(file);
  if (found == by_file_.end()) return;
  closed = std::move(found->second->descriptor);
  entries_.erase(found->second);
  by_file_.erase(found);
}

ReopenedFile::ReopenedFile(std::string path, uint64_t size, std::shared_ptr<OpenFiles> files,
                           int more_flags)
    : path_(std::move(path)), size_(size), more_flags_(more_flags), files_(std::move(files)) {
  struct stat info {};
  UniqueFd fd = open(&info);
  device_ = info.st_dev, number_ = info.st_ino;
  files_->keep(this, std::move(fd));
}

ReopenedFile::~ReopenedFile() { files_->forget(this); }

UniqueFd ReopenedFile::open(struct stat* info) const {
  UniqueFd fd;
  int reason = 0;
  do {  // what the process has open beside ours may leave room for fewer
    fd.reset(file_calls::open(path_, O_RDONLY | O_CLOEXEC | O_NONBLOCK | more_flags_));
    reason = fd ? 0 : errno;
  } while ((reason == EMFILE || reason == ENFILE) && files_->close_one());
  check<Corrupt>(reason != ENOENT, "{} was deleted while it was read", path_);
  check<ResourceError>(reason == 0, "cannot open {}: {}", path_, errno_text(reason));
  if (file_calls::fstat(fd.get(), info) != 0)
    fail<ResourceError>("cannot stat {}: {}", path_, errno_text());
  check<Corrupt>(static_cast<uint64_t>(info->st_size) == size_, "{} was replaced while it was read",
                 path_);
  return fd;
}

std::shared_ptr<const UniqueFd> ReopenedFile::descriptor() const {
  if (auto open = files_->find(this)) return open;
  struct stat info {};
  UniqueFd fd = open(&info);
  check<Corrupt>(info.st_dev == device_ && info.st_ino == number_,
                 "{} was replaced while it was read", path_);
  return files_->keep(this, std::move(fd));
}

}  // namespace trireme
