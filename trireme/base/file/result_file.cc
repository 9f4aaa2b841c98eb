// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/result_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"

namespace trireme {
namespace {

/// The descriptor of this process that a path names.
std::optional<int> own_descriptor(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const std::string_view digits = path.substr(folder.size());
    int fd = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), fd);
    if (error == std::errc() && end == digits.data() + digits.size() && fd >= 0) return fd;
  }
  return {};
}

/// A link or pipe that somebody else put into a folder where everybody may write (/tmp) would send
/// what this user writes to where that one wants it.
void refuse_planted(const std::string& path, const struct stat& found) {
  struct stat folder {};
  if (found.st_uid == ::geteuid() || file_calls::stat(parent_folder(path), &folder) != 0) return;
  const bool shared = (folder.st_mode & S_ISVTX) && (folder.st_mode & S_IWOTH);
  check<ResourceError>(
      !shared || found.st_uid == folder.st_uid,
      "cannot write {}: another user has put {} there, in a folder where everybody "
      "may write. Name a file in a folder of your own",
      path, S_ISLNK(found.st_mode) ? "a link" : "what is no regular file");
}

/// A link in /proc leads to what is open, and not to what it says.
bool can_be_followed(const std::string& path) {
  return !own_descriptor(path) && !path.starts_with("/proc/");
}

void write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = file_calls::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      fail<ResourceError>("cannot write {}: {}", path, errno_text());
    }
  }
}

struct Target {
  std::string path;          // no link
  std::optional<int> fd;     // of this process
  bool is_replaced = false;  // else it is opened and written
};

Target target_of(const std::string& path) {
  Target target{follow_links(path), {}};
  target.fd = own_descriptor(target.path);
  if (target.fd) return target;
  const PathKind kind = path_kind(target.path);
  check<UsageError>(kind != PathKind::folder, "{} is a folder: name a file to write", path);
  struct stat found {};
  if (kind == PathKind::other && file_calls::stat(target.path, &found) == 0)
    refuse_planted(target.path, found);
  target.is_replaced = kind != PathKind::other && can_be_followed(target.path);
  return target;
}

}  // namespace

std::string follow_links(const std::string& path) {
  constexpr int kMost = 40;  // as the kernel
  std::string at = path;
  for (int i = 0; i < kMost; ++i) {
    struct stat found {};
    if (!can_be_followed(at) || file_calls::lstat(at, &found) != 0 || !S_ISLNK(found.st_mode))
      return at;
    refuse_planted(at, found);
    std::error_code error;
    const std::string to = std::filesystem::read_symlink(at, error).string();
    check<ResourceError>(!error, "cannot read the link {}: {}", at, error.message());
    at = to.starts_with('/') ? to : parent_folder(at) + "/" + to;
  }
  fail<ResourceError>("{}: {}", path, errno_text(ELOOP));
}

void write_result_file(const std::string& path, std::string_view bytes) {
  const Target target = target_of(path);
  if (target.is_replaced) return write_file_atomic(target.path, bytes);
  if (target.fd) return write_all(*target.fd, path, bytes);
  UniqueFd fd(file_calls::open(target.path, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC));
  check<ResourceError>(static_cast<bool>(fd), "cannot open {}: {}", path, errno_text());
  write_all(fd.get(), path, bytes);
  if (file_calls::close(fd.release()) != 0)
    fail<ResourceError>("cannot close {}: {}", path, errno_text());
}

void check_result_file(const std::string& path) {
  const Target target = target_of(path);
  int error = 0;
  if (target.fd) {
    const int flags = ::fcntl(*target.fd, F_GETFL);
    error = flags < 0 ? errno : (flags & O_ACCMODE) == O_RDONLY ? EBADF : 0;
  } else if (!target.is_replaced) {
    if (::access(target.path.c_str(), W_OK) != 0) error = errno;
  } else {
    const std::string beside = fmt::format("{}.tmp.{}", target.path, ::gettid());
    const UniqueFd fd(
        file_calls::open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!fd)
      error = errno;
    else
      file_calls::unlink(beside);
  }
  check<ResourceError>(error == 0 || error == EEXIST, "cannot write {}: {}", path,
                       errno_text(error));
}

}  // namespace trireme
