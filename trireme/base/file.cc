// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"

namespace trireme {
namespace {

UniqueFd open_or_fail(const std::string& path, int flags, mode_t mode = 0644) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  check<ResourceError>(static_cast<bool>(fd), "cannot open {}: {}", path, errno_text());
  return fd;
}

}  // namespace

std::string read_file(const std::string& path, size_t limit) {
  UniqueFd fd = open_or_fail(path, O_RDONLY);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) fail<ResourceError>("cannot stat {}: {}", path, errno_text());
  check<ResourceError>(!S_ISDIR(st.st_mode), "{} is a folder, not a file", path);
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n >= 0, "cannot read {}: {}", path, errno_text());
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    check<ResourceError>(bytes.size() <= limit,
                         "{} is larger than {} bytes, the most this file may have", path, limit);
  }
}

void fsync_path(const std::string& path) {
  UniqueFd fd = open_or_fail(path, O_RDONLY);
  if (::fsync(fd.get()) != 0) fail<ResourceError>("cannot sync {}: {}", path, errno_text());
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  std::string temporary = path + ".tmp." + std::to_string(::getpid());
  try {
    UniqueFd fd = open_or_fail(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    while (!bytes.empty()) {
      if (int pretend = failpoint("file.write")) {
        errno = pretend;
        fail<ResourceError>("cannot write {}: {}", path, errno_text());
      }
      ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      check<ResourceError>(n >= 0, "cannot write {}: {}", path, errno_text());
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    if (::fsync(fd.get()) != 0) fail<ResourceError>("cannot sync {}: {}", path, errno_text());
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      fail<ResourceError>("cannot rename {} to {}: {}", temporary, path, errno_text());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  auto slash = path.rfind('/');
  fsync_path(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
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
