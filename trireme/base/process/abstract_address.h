// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "trireme/base/check.h"

namespace trireme {

/// The address of a Unix socket that has a name and no file: it goes with its last descriptor, and
/// everybody in the network namespace can see it. Corrupt: the name is too long.
inline sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  check<Corrupt>(name.size() < sizeof a.sun_path - 1, "socket name of {} bytes", name.size());
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

}  // namespace trireme
