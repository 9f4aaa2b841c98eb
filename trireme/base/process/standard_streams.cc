// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace trireme {

void open_missing_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one: those below are open.
    const int opened = ::open("/dev/null", O_RDWR);
    if (opened > 2) ::close(opened);
  }
}

}  // namespace trireme
