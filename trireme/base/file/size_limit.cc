// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/size_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "trireme/base/check.h"

namespace trireme {

void check_file_size(const std::string& path, uint64_t bytes) {
  rlimit limit{};
  check<ResourceError>(
      ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur,
      "cannot write {}: it would have {} bytes, and the limit on file sizes is {} (ulimit -f)",
      path, bytes, limit.rlim_cur);
}

bool may_grow(int fd, uint64_t bytes) noexcept {
  rlimit limit{};
  struct stat file {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return true;
  return static_cast<uint64_t>(file.st_size) + bytes <= limit.rlim_cur;
}

}  // namespace trireme
