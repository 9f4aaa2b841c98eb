// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/refused.h"

#include <sys/resource.h>

#include <cerrno>

#include "trireme/base/check.h"

namespace trireme::local {

std::string no_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format(
      "this process has used all {} files that it may open. A group of n ranks needs 2n - 1 in "
      "each process: raise 'ulimit -n', or make fewer groups",
      limit.rlim_cur);
}

void refused(const std::string& what, const char* call) {
  const int code = errno;
  switch (code) {
    case EMFILE:
      throw NoDescriptors(what + ": " + no_descriptors());
    case EPERM:
    case EACCES:
    case ENOSYS:
      fail<ResourceError>(
          "{}: {}: {}. A seccomp profile or sandbox denies it: allow {}, run the ranks as threads "
          "of one process, or use the gloo backend",
          what, call, errno_text(code), call);
    case ENOMEM:
      fail<ResourceError>("{}: {}: {}. See 'ulimit -v' and vm.max_map_count, or run fewer ranks",
                          what, call, errno_text(code));
    default:
      fail<ResourceError>("{}: {}: {}", what, call, errno_text(code));
  }
}

}  // namespace trireme::local
