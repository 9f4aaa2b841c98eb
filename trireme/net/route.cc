// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/route.h"

#include <netdb.h>
#include <sys/socket.h>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"

namespace trireme::net {
namespace {

std::string numeric_host(const SocketAddress& address) {
  char host[NI_MAXHOST];
  const int rc =
      ::getnameinfo(address.get(), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  check<ResourceError>(rc == 0, "cannot format an address: {}", ::gai_strerror(rc));
  return host;
}

}  // namespace

Route route_to(const Address& address) {
  for (const SocketAddress& to : resolve(address)) {
    if (to.is_loopback()) return {};
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    SocketAddress from;
    from.length = sizeof from.storage;
    if (!fd || ::connect(fd.get(), to.get(), to.length) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length) != 0)
      continue;
    if (from.is_loopback()) return {};  // one of this host's own
    return {numeric_host(to), numeric_host(from)};
  }
  fail<ResourceError>("this host has no route to {}", address.text());
}

}  // namespace trireme::net
