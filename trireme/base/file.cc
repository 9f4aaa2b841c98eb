// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/file/size_limit.h"

namespace trireme {
namespace {

UniqueFd open_or_fail(const std::string& path, int flags) {
  UniqueFd fd(file_calls::open(path, flags | O_CLOEXEC));
  check<ResourceError>(static_cast<bool>(fd), "cannot open {}: {}", path, errno_text());
  return fd;
}

/// A name that no stranger can have put in a folder.
bool is_own_descriptor(const std::string& path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

/// Nobody else writes to it: not who has put a link there, nor a process that is gone and had this
/// one's number.
UniqueFd make_own(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd(file_calls::open(path, kFlags, 0644));
  if (!fd && errno == EEXIST) {
    file_calls::unlink(path);
    fd.reset(file_calls::open(path, kFlags, 0644));
  }
  check<ResourceError>(static_cast<bool>(fd), "cannot open {}: {}", path, errno_text());
  return fd;
}

}  // namespace

std::string read_file(const std::string& path, size_t limit) {
  // A pipe without a writer would keep open() waiting.
  const bool may_be_pipe = is_own_descriptor(path);
  UniqueFd fd = open_or_fail(path, O_RDONLY | (may_be_pipe ? 0 : O_NONBLOCK));
  struct stat st {};
  if (file_calls::fstat(fd.get(), &st) != 0)
    fail<ResourceError>("cannot stat {}: {}", path, errno_text());
  check<ResourceError>(!S_ISDIR(st.st_mode), "{} is a folder, not a file", path);
  check<ResourceError>(may_be_pipe || S_ISREG(st.st_mode),
                       "{} is a {} and not a regular file: remove it, or name another file", path,
                       S_ISFIFO(st.st_mode) ? "named pipe" : "device");
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    ssize_t n = file_calls::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n >= 0, "cannot read {}: {}", path, errno_text());
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    check<ResourceError>(bytes.size() <= limit,
                         "{} is larger than {} bytes, the most this file may have", path, limit);
  }
}

void fsync_path(const std::string& path) {
  UniqueFd fd = open_or_fail(path, O_RDONLY | O_NONBLOCK);
  if (file_calls::fsync(fd.get()) != 0)
    fail<ResourceError>("cannot sync {}: {}", path, errno_text());
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  check_file_size(path, bytes.size());
  // Named after the thread, so that threads which write one file share no temporary.
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::gettid());
  try {
    UniqueFd fd = make_own(temporary);
    while (!bytes.empty()) {
      if (int pretend = failpoint("file.write")) {
        errno = pretend;
        fail<ResourceError>("cannot write {}: {}", path, errno_text());
      }
      ssize_t n = file_calls::write(fd.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      check<ResourceError>(n >= 0, "cannot write {}: {}", path, errno_text());
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    if (file_calls::fsync(fd.get()) != 0)
      fail<ResourceError>("cannot sync {}: {}", path, errno_text());
    if (file_calls::close(fd.release()) != 0)
      fail<ResourceError>("cannot close {}: {}", path, errno_text());
    if (file_calls::rename(temporary, path) != 0)
      fail<ResourceError>("cannot rename {} to {}: {}", temporary, path, errno_text());
  } catch (...) {
    file_calls::unlink(temporary);
    throw;
  }
  fsync_path(parent_folder(path));
}

PrivateFolder::PrivateFolder(std::string_view prefix) {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base && *base ? base : "/tmp") + "/" + std::string(prefix) + ".XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr)
    fail<ResourceError>("cannot make a folder {}: {}", path_, errno_text());
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trireme
