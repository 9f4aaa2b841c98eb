// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "trireme/base/fd.h"

namespace trireme::testing {

/// A TCP port that is taken as long as this object lives: the kernel chose it.
class TakenPort {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
        ::listen(fd_.get(), 1) == 0 &&
        ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0)
      port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }  // 0: none could be had

 private:
  UniqueFd fd_;
  int port_ = 0;
};

/// A port that was free a moment ago.
inline int free_tcp_port() { return TakenPort().port(); }

}  // namespace trireme::testing
