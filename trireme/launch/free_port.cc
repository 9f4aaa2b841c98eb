// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"

namespace trireme::launch {

int free_port(int wanted) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check<ResourceError>(static_cast<bool>(fd), "cannot make a TCP socket: {}", errno_text());
  int on = 1;  // as the worker's own store does: a port in TIME_WAIT is free
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  socklen_t size = sizeof address;
  bool ok = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
            (wanted == 0 || ::listen(fd.get(), 1) == 0) &&
            ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  check<ResourceError>(ok,
                       "cannot use port {} as MASTER_PORT: {}. Choose another --master-port, or "
                       "leave it out for a free one",
                       wanted, errno_text());
  return ntohs(address.sin_port);
}

}  // namespace trireme::launch
