// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/file_calls.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "trireme/base/events/progress_marks.h"

namespace trireme::file_calls {
namespace {

using Kind = FileCallKind;
using detail::FileCall;
using detail::FileVisit;

/// `body(size)` is the system call; `failed` what it gives when it fails.
template <class Result, class Body>
Result visited(FileCall call, Result failed, const Body& body) {
  FileVisit visit(std::move(call));
  Result result = failed;
  if (visit.error())
    errno = visit.error();
  else
    result = body(visit.size());
  if constexpr (std::is_pointer_v<Result>)
    visit.done(result == failed ? -1 : 0);
  else
    visit.done(result);
  return result;
}

bool armed() { return detail::file_faults_armed(); }

}  // namespace

int open(const std::string& path, int flags, mode_t mode) {
  if (!armed()) return ::open(path.c_str(), flags, mode);
  return visited<int>({.kind = flags & O_CREAT ? Kind::create : Kind::open,
                       .path = path,
                       .truncates = (flags & O_TRUNC) != 0},
                      -1, [&](size_t) { return ::open(path.c_str(), flags, mode); });
}

ssize_t write(int fd, const void* bytes, size_t size) {
  mark_alive();
  if (!armed()) return ::write(fd, bytes, size);
  return visited<ssize_t>({.kind = Kind::write, .fd = fd, .bytes = bytes, .size = size}, -1,
                          [&](size_t n) { return ::write(fd, bytes, n); });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  mark_alive();
  if (!armed()) return ::pwrite(fd, bytes, size, offset);
  return visited<ssize_t>(
      {.kind = Kind::pwrite, .fd = fd, .bytes = bytes, .size = size, .offset = offset}, -1,
      [&](size_t n) { return ::pwrite(fd, bytes, n, offset); });
}

ssize_t read(int fd, void* into, size_t size) {
  mark_alive();
  if (!armed()) return ::read(fd, into, size);
  return visited<ssize_t>({.kind = Kind::read, .fd = fd, .size = size}, -1,
                          [&](size_t n) { return ::read(fd, into, n); });
}

ssize_t pread(int fd, void* into, size_t size, off_t offset) {
  mark_alive();
  if (!armed()) return ::pread(fd, into, size, offset);
  return visited<ssize_t>({.kind = Kind::pread, .fd = fd, .size = size, .offset = offset}, -1,
                          [&](size_t n) { return ::pread(fd, into, n, offset); });
}

ssize_t pread_cached(int fd, void* into, size_t size, off_t offset) {
  mark_alive();
  const auto call = [&](size_t n) {
    const iovec to{into, n};
    return ::preadv2(fd, &to, 1, offset, RWF_NOWAIT);
  };
  if (!armed()) return call(size);
  return visited<ssize_t>({.kind = Kind::pread_cached, .fd = fd, .size = size, .offset = offset},
                          -1, call);
}

int fsync(int fd) {
  mark_alive();
  if (!armed()) return ::fsync(fd);
  return visited<int>({.kind = Kind::fsync, .fd = fd}, -1, [&](size_t) { return ::fsync(fd); });
}

int fdatasync(int fd) {
  mark_alive();
  if (!armed()) return ::fdatasync(fd);
  return visited<int>({.kind = Kind::fdatasync, .fd = fd}, -1,
                      [&](size_t) { return ::fdatasync(fd); });
}

// The descriptor is gone also where close() fails, as with the kernel's.
int close(int fd) {
  if (!armed()) return ::close(fd);
  FileVisit visit({.kind = Kind::close, .fd = fd});
  int result = ::close(fd);
  if (visit.error()) errno = visit.error(), result = -1;
  visit.done(result);
  return result;
}

int rename(const std::string& from, const std::string& to) {
  if (!armed()) return ::rename(from.c_str(), to.c_str());
  return visited<int>({.kind = Kind::rename, .path = from, .to = to}, -1,
                      [&](size_t) { return ::rename(from.c_str(), to.c_str()); });
}

int exchange(const std::string& a, const std::string& b) {
  const auto call = [&](size_t) {
    return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  };
  if (!armed()) return call(0);
  return visited<int>({.kind = Kind::exchange, .path = a, .to = b}, -1, call);
}

int link(const std::string& from, const std::string& to) {
  if (!armed()) return ::link(from.c_str(), to.c_str());
  return visited<int>({.kind = Kind::link, .path = from, .to = to}, -1,
                      [&](size_t) { return ::link(from.c_str(), to.c_str()); });
}

int symlink(const std::string& target, const std::string& path) {
  if (!armed()) return ::symlink(target.c_str(), path.c_str());
  return visited<int>({.kind = Kind::link, .path = target, .to = path}, -1,
                      [&](size_t) { return ::symlink(target.c_str(), path.c_str()); });
}

int touch(const std::string& path) {
  const auto call = [&](size_t) { return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); };
  if (!armed()) return call(0);
  return visited<int>({.kind = Kind::touch, .path = path}, -1, call);
}

int mkdir(const std::string& path, mode_t mode) {
  if (!armed()) return ::mkdir(path.c_str(), mode);
  return visited<int>({.kind = Kind::mkdir, .path = path}, -1,
                      [&](size_t) { return ::mkdir(path.c_str(), mode); });
}

int unlink(const std::string& path) {
  if (!armed()) return ::unlink(path.c_str());
  return visited<int>({.kind = Kind::unlink, .path = path}, -1,
                      [&](size_t) { return ::unlink(path.c_str()); });
}

int rmdir(const std::string& path) {
  if (!armed()) return ::rmdir(path.c_str());
  return visited<int>({.kind = Kind::rmdir, .path = path}, -1,
                      [&](size_t) { return ::rmdir(path.c_str()); });
}

DIR* opendir(const std::string& path) {
  if (!armed()) return ::opendir(path.c_str());
  return visited<DIR*>({.kind = Kind::opendir, .path = path}, nullptr,
                       [&](size_t) { return ::opendir(path.c_str()); });
}

dirent* readdir(DIR* folder, const std::string& path) {
  errno = 0;
  if (!armed()) return ::readdir(folder);
  FileVisit visit({.kind = Kind::readdir, .path = path});
  dirent* item = nullptr;
  errno = visit.error();
  if (!errno) item = ::readdir(folder);
  visit.done(item || !errno ? 0 : -1);
  return item;
}

int stat(const std::string& path, struct ::stat* into) {
  if (!armed()) return ::stat(path.c_str(), into);
  return visited<int>({.kind = Kind::stat, .path = path}, -1,
                      [&](size_t) { return ::stat(path.c_str(), into); });
}

int lstat(const std::string& path, struct ::stat* into) {
  if (!armed()) return ::lstat(path.c_str(), into);
  return visited<int>({.kind = Kind::stat, .path = path}, -1,
                      [&](size_t) { return ::lstat(path.c_str(), into); });
}

int fstat(int fd, struct ::stat* into) {
  if (!armed()) return ::fstat(fd, into);
  return visited<int>({.kind = Kind::stat, .fd = fd}, -1,
                      [&](size_t) { return ::fstat(fd, into); });
}

int ftruncate(int fd, off_t size) {
  if (!armed()) return ::ftruncate(fd, size);
  return visited<int>({.kind = Kind::truncate, .fd = fd, .offset = size}, -1,
                      [&](size_t) { return ::ftruncate(fd, size); });
}

int fallocate(int fd, off_t offset, off_t size) {
  if (!armed()) return ::fallocate(fd, 0, offset, size);
  return visited<int>({.kind = Kind::allocate, .fd = fd, .offset = offset + size}, -1,
                      [&](size_t) { return ::fallocate(fd, 0, offset, size); });
}

int posix_fallocate(int fd, off_t offset, off_t size) {
  if (!armed()) return ::posix_fallocate(fd, offset, size);
  FileVisit visit({.kind = Kind::allocate, .fd = fd, .offset = offset + size});
  const int error = visit.error() ? visit.error() : ::posix_fallocate(fd, offset, size);
  visit.done(error ? -1 : 0);
  return error;
}

int flock(int fd, int operation) {
  if (!armed()) return ::flock(fd, operation);
  return visited<int>({.kind = Kind::lock, .fd = fd}, -1,
                      [&](size_t) { return ::flock(fd, operation); });
}

int statvfs(const std::string& path, struct ::statvfs* into) {
  if (!armed()) return ::statvfs(path.c_str(), into);
  return visited<int>({.kind = Kind::statvfs, .path = path}, -1,
                      [&](size_t) { return ::statvfs(path.c_str(), into); });
}

int fstatvfs(int fd, struct ::statvfs* into) {
  if (!armed()) return ::fstatvfs(fd, into);
  return visited<int>({.kind = Kind::statvfs, .fd = fd}, -1,
                      [&](size_t) { return ::fstatvfs(fd, into); });
}

void* map(int fd, size_t size, off_t offset) {
  const auto call = [&](size_t) {
    return ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, offset);
  };
  if (!armed()) return call(0);
  return visited<void*>({.kind = Kind::map, .fd = fd, .offset = offset}, MAP_FAILED, call);
}

std::unique_ptr<detail::FileVisit> before(detail::FileCall call) {
  if (!armed()) return nullptr;
  call.comes_back_later = true;
  return std::make_unique<FileVisit>(std::move(call));
}

}  // namespace trireme::file_calls
