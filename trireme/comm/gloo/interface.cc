// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/interface.h"

#include <netdb.h>
#include <sys/socket.h>

#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/join.h"

namespace trireme::detail {
namespace {

std::string host_of(const net::SocketAddress& address) {
  char host[NI_MAXHOST];
  const int rc =
      ::getnameinfo(address.get(), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  check<ResourceError>(rc == 0, "cannot format an address: {}", ::gai_strerror(rc));
  return host;
}

struct Route {
  std::string to, from;  // numeric
};

/// Returns the route that the kernel would use; empty for loopback.
Route route_to(const net::Address& store) {
  for (const net::SocketAddress& to : net::resolve(store)) {
    if (to.is_loopback()) return {};
    // No packet is sent: the kernel looks up the route.
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    net::SocketAddress from;
    from.length = sizeof from.storage;
    if (!fd || ::connect(fd.get(), to.get(), to.length) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length) != 0)
      continue;
    if (from.is_loopback()) return {};  // one of this host's own
    return {host_of(to), host_of(from)};
  }
  fail<ResourceError>("this host has no route to the store at {}", store.text());
}

}  // namespace

std::string data_address(Store& store, int rank, int size, const std::string& where,
                         Deadline deadline, const std::function<void()>& look) {
  Route mine;
  // "tcp://10.0.0.1:29501 under world/"
  const std::string endpoint = where.substr(0, where.find(' '));
  if (endpoint.starts_with("tcp://")) {
    const auto at = net::Endpoint::parse(endpoint);
    if (!net::is_loopback(at.address.host)) mine = route_to(at.address);
  }
  store.set(fmt::format("address/{}", rank), mine.to);
  std::string host = mine.from;
  for (int r = 0; r < size; ++r) {
    const std::string key = fmt::format("address/{}", r);
    std::optional<std::string> theirs;
    while (!(theirs = store.try_get(key))) {
      look();
      try {
        store.wait({key}, Deadline::after(std::min<Duration>(deadline.remaining(),
                                                             std::chrono::milliseconds(100))));
      } catch (const Timeout&) {
        if (!deadline.expired()) continue;
        std::vector<int> missing;
        for (int q = 0; q < size; ++q)
          if (!store.check({fmt::format("address/{}", q)})) missing.push_back(q);
        fail<Timeout>("gloo: rank {} did not join the group of {} in time (this is rank {})",
                      name_ranks(missing), size, rank);
      }
    }
    // This rank is on the store's host, and others reach it over a network, at that address.
    if (host.empty()) host = *theirs;
  }
  return host.empty() ? "127.0.0.1" : host;
}

}  // namespace trireme::detail
