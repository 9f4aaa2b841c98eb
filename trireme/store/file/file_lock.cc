// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_lock.h"

#include <fcntl.h>

#include <thread>

#include "trireme/base/check.h"
#include "trireme/net/connect.h"

namespace trireme::detail {
namespace {

constexpr int kYields = 50;  // most holders are gone within microseconds

struct flock byte_at(int64_t at, short type) {
  struct flock out {};
  out.l_type = type;
  out.l_whence = SEEK_SET;
  out.l_start = at;
  out.l_len = 1;
  return out;
}

[[noreturn]] void fail_lock(const std::string& where, int code) {
  check<PeerLost>(code != ESTALE, "{} was deleted: {}", where, errno_text(code));
  fail<ResourceError>(
      "cannot lock {}: {}. The store's file must be in a folder whose file locks all ranks share "
      "(NFS: mounted without nolock); else use tcp://host:port",
      where, errno_text(code));
}

}  // namespace

FileLock::FileLock(int fd, int64_t at, LockMode mode, Deadline deadline, const std::string& where)
    : fd_(fd), at_(at) {
  auto start = Clock::now();
  net::BackOff back_off(std::chrono::microseconds(50), std::chrono::milliseconds(5));
  auto lock = byte_at(at, mode == LockMode::shared ? F_RDLCK : F_WRLCK);
  for (int tries = 0; ::fcntl(fd, F_OFD_SETLK, &lock) != 0; ++tries) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EACCES) fail_lock(where, errno);
    if (tries < kYields) {
      std::this_thread::yield();
      continue;
    }
    check<Timeout>(back_off.pause(deadline),
                   "another process holds the lock of {} since {:.1f} s: is a rank stopped in the "
                   "middle of a call, or the file server away?",
                   where, seconds_since(start));
  }
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  auto lock = byte_at(at_, F_UNLCK);
  ::fcntl(fd_, F_OFD_SETLK, &lock);
}

bool is_locked(int fd, int64_t at, const std::string& where) {
  auto lock = byte_at(at, F_RDLCK);
  if (::fcntl(fd, F_OFD_GETLK, &lock) != 0) fail_lock(where, errno);
  return lock.l_type != F_UNLCK;
}

}  // namespace trireme::detail
