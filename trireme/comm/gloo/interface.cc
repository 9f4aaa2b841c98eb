// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/interface.h"

#include <vector>

#include "trireme/base/check.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/route.h"
#include "trireme/rendezvous/join.h"

namespace trireme::detail {

std::string data_address(Store& store, int rank, int size, const std::string& where,
                         Deadline deadline, const std::function<void()>& look) {
  net::Route mine;
  // "tcp://10.0.0.1:29501 under world/"
  const std::string endpoint = where.substr(0, where.find(' '));
  if (endpoint.starts_with("tcp://")) {
    const auto at = net::Endpoint::parse(endpoint);
    if (!net::is_loopback(at.address.host)) mine = net::route_to(at.address);
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
