// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/mpi/own_store.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/comm/local/types.h"
#include "trireme/net/connect.h"
#include "trireme/net/connect_and_authenticate.h"
#include "trireme/net/hmac.h"
#include "trireme/net/listener.h"
#include "trireme/net/secret.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace trireme::detail {
namespace {

constexpr Duration kEnter = std::chrono::seconds(10);
constexpr size_t kMostPlaces = 16;

/// What rank 0 sends to the others through MPI.
struct Invitation {
  std::vector<std::string> places;
  std::string job, random;
  TRIREME_FIELDS(places, job, random)
};

/// Small exchanges between all ranks, before the group has calls of its own.
class Talk {
 public:
  Talk(const MpiCommunicator& comm, Deadline deadline)
      : comm_(comm), deadline_(deadline), words_(std::make_unique<Words>()) {}

  std::array<int64_t, 2> lowest(std::array<int64_t, 2> numbers) {
    words_->numbers = numbers;
    TriremeMpiRequest request;
    finish(comm_.api.all_reduce(comm_.handle(), words_->numbers.data(), 2,
                                static_cast<uint8_t>(local::DType::i64),
                                static_cast<uint8_t>(ReduceOp::min), &request),
           request);
    return words_->numbers;
  }
  std::string from_rank_0(const std::string& text) {
    check<ResourceError>(text.size() <= sizeof words_->text, "an invitation of {} bytes",
                         text.size());
    words_->size = text.size();
    text.copy(words_->text, text.size());
    TriremeMpiRequest request;
    finish(comm_.api.broadcast(comm_.handle(), &words_->size, kTextBytes + sizeof words_->size,
                               static_cast<uint8_t>(local::DType::u8), 0, &request),
           request);
    return {words_->text, std::min(words_->size, sizeof words_->text)};
  }

 private:
  static constexpr size_t kTextBytes = 4096;
  struct Words {
    std::array<int64_t, 2> numbers;
    size_t size = 0;
    char text[kTextBytes] = "";
  };

  void finish(int code, TriremeMpiRequest& request) {
    check<ResourceError>(code == 0, "rank {}: MPI does not bring the group's ranks together: {}",
                         comm_.rank(), code ? comm_.problem(code).text : "");
    if (comm_.finish(request, deadline_)) return;
    [[maybe_unused]] Words* kept = words_.release();  // MPI still writes it
    fail<Timeout>("rank {}: not all {} ranks joined the group in time", comm_.rank(), comm_.size());
  }

  const MpiCommunicator& comm_;
  const Deadline deadline_;
  std::unique_ptr<Words> words_;
};

/// Ranks with the same value can meet at an abstract Unix socket: one kernel, one network
/// namespace.
int64_t this_host() {
  std::string id;
  if (const char* given = std::getenv("TRIREME_HOST_ID"); given && *given) {
    id = given;
  } else {
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    std::error_code error;
    id += std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  }
  return static_cast<int64_t>(stable_hash(id));
}

std::string numeric(const net::SocketAddress& address) {
  return net::parse_address(address.text()).host;
}

/// Returns the addresses of MASTER_ADDR that are valid on other hosts.
std::vector<std::string> master_addresses() {
  const auto master = net::process_env("MASTER_ADDR");
  std::vector<std::string> found;
  if (!master || master->empty()) return found;
  try {
    for (const auto& one : net::resolve({*master, 0}))
      if (one.is_loopback() == net::is_loopback(*master)) found.push_back(numeric(one));
  } catch (const Error& e) {
    log_debug("MASTER_ADDR={}: {}", *master, e.what());
  }
  return found;
}

std::vector<std::string> all_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<std::string> found;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK)) continue;
    const bool v6 = at->ifa_addr->sa_family == AF_INET6;
    if (!v6 && at->ifa_addr->sa_family != AF_INET) continue;
    net::SocketAddress address;
    address.length = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&address.storage, at->ifa_addr, address.length);
    // A link-local address is not valid on another host.
    if (v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr))
      continue;
    found.push_back(numeric(address));
  }
  return found;
}

std::vector<net::Listener> listen_on(const std::vector<std::string>& hosts) {
  std::vector<net::Listener> all;
  for (const std::string& host : hosts) try {
      if (all.size() < kMostPlaces) all.emplace_back(net::Endpoint::tcp({host, 0}));
    } catch (const ResourceError& e) {
      log_debug("{}", e.what());
    }
  return all;
}

std::vector<net::Listener> listen(bool one_host) {
  std::vector<net::Listener> all;
  if (one_host) {
    all.emplace_back(net::Endpoint::unix_abstract("trireme-mpi-" + net::random_token()));
    return all;
  }
  all = listen_on(master_addresses());
  if (all.empty()) all = listen_on(all_addresses());
  if (all.empty()) all = listen_on({"127.0.0.1"});
  check<ResourceError>(!all.empty(), "this host has no address to listen on");
  return all;
}

net::Credentials credentials_of(const Invitation& invitation, bool one_host) {
  net::Credentials made{invitation.job, std::nullopt};
  if (one_host) return made;  // the kernel reports whose process connects
  std::string mixed = invitation.random;
  if (const auto admission = net::load_admission(); admission.secret) {
    const std::string raw = net::hmac_sha256(admission.secret->bytes(), mixed);
    mixed.clear();
    for (char c : raw) mixed += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  made.secret.emplace(mixed);
  return made;
}

/// The servers of groups that rank 0 has left and others have not. They end with the last of those
/// ranks, and are removed when the next group is made or left. At exit() MPI waits for all ranks.
class LeftServers {
 public:
  static LeftServers& of_this_process() {
    static auto* const one = new LeftServers;
    return *one;
  }
  void keep(std::unique_ptr<StoreServer> server) {
    server->end_with_the_last_client();
    // Usually all ranks leave together.
    server->wait_until_clients_left(Deadline::after(std::chrono::milliseconds(100)));
    std::lock_guard lock(mutex_);
    servers_.push_back(std::move(server));
    std::erase_if(servers_, [](const auto& s) { return s->clients() == 0; });
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StoreServer>> servers_;
};

std::shared_ptr<StoreServer> serve(const MpiCommunicator& comm, bool one_host,
                                   Invitation& invitation) {
  invitation.job = net::random_token();
  if (!one_host) invitation.random = net::generate_secret();
  StoreServer::Options options;
  options.credentials = credentials_of(invitation, one_host);
  options.max_pending = StoreServer::most_strangers(comm.size());
  std::shared_ptr<StoreServer> server(
      new StoreServer(std::move(options), listen(one_host)),
      [](StoreServer* s) { LeftServers::of_this_process().keep(std::unique_ptr<StoreServer>(s)); });
  for (const auto& at : server->endpoints()) invitation.places.push_back(at.text());
  return server;
}

std::unique_ptr<Store> enter(const Invitation& invitation, bool one_host, Deadline deadline) {
  check<ResourceError>(!invitation.places.empty(), "rank 0 serves none");
  if (const int code = failpoint("comm.mpi_own_store")) fail<ResourceError>("{}", errno_text(code));
  const net::Credentials credentials = credentials_of(invitation, one_host);
  net::BackOff back_off;
  std::string why;
  // Not all of a host's addresses may be reachable from here, so at first none gets much time.
  Duration limit = std::chrono::milliseconds(500);
  do {
    bool refused = true;
    for (const std::string& place : invitation.places) {
      const auto at = net::Endpoint::parse(place);
      ConnectAttempt one = connect_and_authenticate(at, credentials, deadline, limit);
      if (one.socket)
        return std::make_unique<TcpStore>(std::move(*one.socket), std::move(one.session), at,
                                          credentials);
      why = fmt::format("{}: {}", place, one.why);
      refused = refused && one.refused && one.refused->code != net::Refusal::busy;
    }
    check<UsageError>(!refused, "{}", why);
    limit = std::min(2 * limit, net::kHandshakeLimit);
  } while (back_off.pause(deadline));
  fail<Timeout>("{}", why);
}

}  // namespace

MpiOwnStore open_own_store(const MpiCommunicator& comm, Duration timeout) {
  Talk talk(comm, Deadline::after(timeout));
  const int64_t host = this_host();
  const auto hosts = talk.lowest({host, ~host});  // and the highest
  const bool one_host = hosts[0] == ~hosts[1];
  Invitation invitation;
  MpiOwnStore own;
  std::string why;
  if (comm.rank() == 0) try {
      own.server = serve(comm, one_host, invitation);
      own.store = own.server->local_store();
    } catch (const Error& e) {
      why = e.what();
      invitation = {};
    }
  invitation = decode<Invitation>(talk.from_rank_0(encode(invitation)));
  if (comm.rank() != 0) try {
      own.store =
          enter(invitation, one_host, Deadline::after(std::min<Duration>(timeout / 2, kEnter)));
    } catch (const Error& e) {
      why = e.what();
    }
  const int64_t failed = own.store ? comm.size() : comm.rank();
  const int64_t first = talk.lowest({failed, 0})[0];
  if (first == comm.size()) {
    if (own.server) own.server->stop_listening();
    return own;
  }
  if (first == comm.rank())
    log_warn(
        "rank {} does not reach the store in which the ranks of a group report what they wait for: "
        "{}. They report it through MPI instead, and a rank that leaves goes unnoticed",
        first, why);
  return {};
}

}  // namespace trireme::detail
