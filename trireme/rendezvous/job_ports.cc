// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/job_ports.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/net/connect_and_authenticate.h"

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
  log_warn("{} is the address of no interface of {}: the job's store listens at all of them", host,
           net::host_name());
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

std::optional<net::Listener> listen_if_own_address(const std::string& host, int port) {
  const auto addresses = net::resolve({host, 0});
  for (const auto& found : addresses) {
    const auto numeric = net::parse_address(found.text()).host;
    if (found.is_loopback() == net::is_loopback(host) && is_own_address(numeric))
      return net::Listener::if_free(endpoint(numeric, port));
  }
  // A name with a loopback address is one's own (Debian's 127.0.1.1): others know it by another.
  if (!std::all_of(addresses.begin(), addresses.end(),
                   [](const net::SocketAddress& a) { return a.is_loopback(); }))
    return std::nullopt;
  return net::Listener::if_free(endpoint(interface_for(host), port));
}

namespace {

/// What the ports of one round answered, for texts.
struct Round {
  std::string answered;  // by somebody at a port
  std::string quiet;     // nobody is there
  int others = 0;        // ports at which somebody is who is not our store
  std::string why() const {
    std::string out = answered.empty() ? quiet : answered;
    if (others > 0)
      out = fmt::format("{} of the ports {} held by others; {}", others, others == 1 ? "is" : "are",
                        out);
    return out;
  }
};

/// Somebody at `port` passed us on to the store, which says that it listens at another of the
/// ports.
bool is_relayed(const ConnectAttempt& one, int port, PortRange ports) {
  return one.socket && one.port != port && one.port >= ports.first && one.port <= ports.last;
}

bool may_be_ours(const net::Refused& refused) {
  return refused.code == net::Refusal::wrong_secret ||
         refused.code == net::Refusal::secret_required ||
         refused.code == net::Refusal::no_secret_here;
}

}  // namespace

JobStoreFound find_job_store(const std::string& host, PortRange ports,
                             const net::Credentials& credentials, Deadline deadline,
                             const std::function<bool()>& give_up) {
  auto start = Clock::now();
  net::BackOff back_off;
  bool warned = false;
  std::string refusal;  // the first that may be ours
  auto believe_it = Deadline::never();
  // Somebody's silent program behind one of the ports costs this long a round; a busy store of ours
  // gets more time each round.
  Duration patience = std::chrono::milliseconds(500);
  Round last;
  while (true) {
    Round round;
    for (int port = ports.first; port <= ports.last && !deadline.expired(); ++port) {
      check<Timeout>(!give_up || !give_up(), "asked to stop looking for the job's store");
      auto at = endpoint(host, port);
      auto one = connect_and_authenticate(at, credentials, deadline, patience);
      if (is_relayed(one, port, ports)) {
        auto itself = endpoint(host, one.port);
        auto direct = connect_and_authenticate(itself, credentials, deadline, patience);
        if (direct.socket && direct.port == one.port) {
          log_warn(
              "a stranger at {} passes on what it is sent to the job's store at port {}: not used",
              at.text(), one.port);
          return {std::move(*direct.socket), std::move(direct.session), itself};
        }
        // A forwarded port, of a container say: who passes on what is sealed can only cut.
      }
      if (one.socket) return {std::move(*one.socket), std::move(one.session), at};
      if (one.refused && may_be_ours(*one.refused)) {
        check<UsageError>(ports.first < ports.last, "{}", one.why);
        if (refusal.empty()) {
          refusal = one.why;
          believe_it = Deadline::after(kRefusalPatience);
          log_warn("{}; looking on at the job's other ports", refusal);
        }
      }
      bool is_busy = one.refused && one.refused->code == net::Refusal::busy;
      if (one.answered && !is_busy) ++round.others;
      // "another job is at 29501" tells more than "29508 refused the connection".
      bool answered = one.refused || one.stranger || one.other_release;
      (answered ? round.answered : round.quiet) = fmt::format("port {}: {}", port, one.why);
    }
    // A round that the deadline cut short may know less than the one before.
    const bool knows_more = !deadline.expired() || round.others >= last.others;
    if (knows_more && !(round.answered.empty() && round.quiet.empty())) last = round;
    patience = std::min<Duration>(patience * 2, std::chrono::seconds(2));
    if (!warned && seconds_since(start) > 3) {
      warned = true;
      log_warn("rank 0's store is not found at {}, {}, after 3 s ({}); trying on", host,
               ports.text(), last.why());
    }
    bool go_on = !believe_it.expired() && back_off.pause(deadline);
    check<UsageError>(go_on || refusal.empty(), "{}", refusal);
    check<Timeout>(go_on,
                   "rank 0 did not open the job's store at {}, {}, within {:.1f} s ({}). Is rank 0 "
                   "running, and does "
                   "MASTER_ADDR name its host?",
                   host, ports.text(), seconds_since(start), last.why());
  }
}

}  // namespace trireme::detail
