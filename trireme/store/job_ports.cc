// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/job_ports.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/store/knock.h"

namespace trireme::detail {
namespace {

constexpr int kPortsTried = 8;

net::Endpoint endpoint(const std::string& host, int port) {
  return net::Endpoint::tcp({host, static_cast<uint16_t>(port)});
}

bool is_own_address(const std::string& host) {
  try {
    net::Listener probe(endpoint(host, 0));
    return true;
  } catch (const ResourceError&) {
    return false;
  }
}

/// The numeric address to bind.
std::string interface_for(const std::string& host) {
  auto found = net::resolve({host, 0});
  for (const auto& one : found) {
    auto numeric = net::parse_address(one.text()).host;
    if (one.is_loopback() != net::is_loopback(host)) continue;
    if (is_own_address(numeric)) return numeric;
  }
  bool any_ipv6 = std::all_of(found.begin(), found.end(), [](const net::SocketAddress& a) {
    return a.storage.ss_family == AF_INET6;
  });
  log_warn(
      "MASTER_ADDR={} is the address of no interface of {}: the job's store listens at all of them",
      host, net::host_name());
  return any_ipv6 ? "::" : "0.0.0.0";
}

}  // namespace

std::string PortRange::text() const {
  return first == last ? fmt::format("port {}", first) : fmt::format("ports {} to {}", first, last);
}

PortRange ports_beside(int master_port) {
  check<UsageError>(
      master_port >= 1 && master_port < 65535,
      "MASTER_PORT={}: the job's store takes one of the ports after it; choose 1 to 65534",
      master_port);
  return {master_port + 1, std::min(master_port + kPortsTried, 65535)};
}

net::Listener listen_at_first_free(const std::string& host, PortRange ports) {
  auto interface = interface_for(host);
  if (ports.first == ports.last) return net::Listener(endpoint(interface, ports.first));
  for (int port = ports.first; port <= ports.last; ++port)
    if (auto listener = net::Listener::if_free(endpoint(interface, port)))
      return std::move(*listener);
  fail<ResourceError>("port in use: {} of {} are all taken; give the job another MASTER_PORT",
                      ports.text(), interface);
}

std::pair<net::Socket, net::Endpoint> find_job_store(const std::string& host, PortRange ports,
                                                     const net::Credentials& credentials,
                                                     Deadline deadline) {
  auto start = Clock::now();
  net::BackOff back_off;
  bool warned = false;
  std::string why;
  // Somebody's silent program behind one of the ports costs this long a round; a busy store of ours
  // gets more time each round.
  Duration patience = std::chrono::milliseconds(500);
  while (true) {
    std::string quiet;
    why.clear();
    for (int port = ports.first; port <= ports.last && !deadline.expired(); ++port) {
      auto at = endpoint(host, port);
      auto one = knock(at, credentials, deadline, patience);
      if (one.socket) return {std::move(*one.socket), at};
      bool may_pass = !one.refused || one.refused->code == net::Refusal::busy ||
                      one.refused->code == net::Refusal::other_job;
      check<UsageError>(may_pass, "{}", one.why);
      // "another job is at 29501" tells more than "29508 refused the connection".
      bool answered = one.refused || one.stranger || one.other_release;
      (answered ? why : quiet) = fmt::format("port {}: {}", port, one.why);
    }
    if (why.empty()) why = quiet;
    patience = std::min<Duration>(patience * 2, net::kHandshakeLimit);
    if (!warned && seconds_since(start) > 5) {
      warned = true;
      log_warn("rank 0's store is not found at {}, {}, after 5 s ({}); trying on", host,
               ports.text(), why);
    }
    check<Timeout>(back_off.pause(deadline),
                   "rank 0 did not open the job's store at {}, {}, within {:.1f} s (last, {}). Is "
                   "rank 0 running, and does "
                   "MASTER_ADDR name its host?",
                   host, ports.text(), seconds_since(start), why);
  }
}

}  // namespace trireme::detail
