// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/part_lock.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"

namespace trireme {
namespace {

struct flock lock_of(uint64_t number, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(number);
  lock.l_len = 1;
  return lock;
}

}  // namespace

PartLocks::PartLocks(const std::string& path)
    : fd_(file_calls::open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644)) {
  check<ResourceError>(static_cast<bool>(fd_), "cannot open {}: {}", path, errno_text());
}

std::optional<PartLocks::Held> PartLocks::take(uint64_t number, Wait wait) const {
  struct flock lock = lock_of(number, F_WRLCK);
  while (::fcntl(fd_.get(), wait == Wait::no ? F_OFD_SETLK : F_OFD_SETLKW, &lock) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return std::nullopt;
    return Held(-1, number, false);  // ENOLCK, EOPNOTSUPP: there are none
  }
  return Held(fd_.get(), number, true);
}

PartLocks::Held::Held(Held&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), number_(other.number_), excludes_(other.excludes_) {}

PartLocks::Held::~Held() {
  if (fd_ < 0) return;
  struct flock lock = lock_of(number_, F_UNLCK);
  ::fcntl(fd_, F_OFD_SETLK, &lock);
}

}  // namespace trireme
