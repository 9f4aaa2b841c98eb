// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/rendezvous.h"

#include <exception>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/admission.h"
#include "trireme/rendezvous/job_ports.h"
#include "trireme/rendezvous/join.h"
#include "trireme/store/file/file_store.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/tcp_store.h"
#include "trireme/store/unix_store.h"

namespace trireme {
namespace {

constexpr std::string_view kFile = "file://";

std::string path_in(const std::string& init_method) {
  auto path = init_method.substr(kFile.size());
  check<UsageError>(path.size() > 1 && path.front() == '/' && path.back() != '/',
                    "init_method '{}': write file:///path of a file, absolute", init_method);
  check<UsageError>(path.find('?') == std::string::npos,
                    "init_method '{}': give rank and world size as arguments, not in the path",
                    init_method);
  return path;
}

RankEnv with_method(RankEnv env, const std::string& init_method) {
  if (init_method == "env://" || init_method.empty() || init_method.starts_with(kFile)) return env;
  constexpr std::string_view kTcp = "tcp://";
  check<UsageError>(init_method.starts_with(kTcp),
                    "init_method '{}': write env://, tcp://host:port or file:///path", init_method);
  check<UsageError>(init_method.find('?') == std::string::npos,
                    "init_method '{}': give rank and world size as arguments, not in the address",
                    init_method);
  auto at = net::parse_address(std::string_view(init_method).substr(kTcp.size()));
  check<UsageError>(at.port != 0,
                    "init_method '{}': all ranks must know the port, so it cannot be 0",
                    init_method);
  env.master_addr = at.host;
  env.master_port = at.port;
  env.store_endpoint.clear();
  if (net::is_loopback(at.host) && env.local_world_size == 0) env.local_world_size = env.world_size;
  return env;
}

/// Our launcher's table outlives attempts and groups: each attempt has its prefix, and each group
/// of this process the next round.
std::unique_ptr<Store> join_launched(const RankEnv& env, const net::Credentials& credentials,
                                     const net::Endpoint& at, Deadline deadline) {
  std::shared_ptr<Store> shared = TcpStore::connect(at, credentials, deadline);
  for (int round = 0;; ++round) {
    auto store = std::make_unique<PrefixStore>(
        shared, fmt::format("attempt/{}/round/{}", env.attempt, round));
    if (detail::take_seat(*store, env.rank, env.world_size) == detail::Seat::left) continue;
    auto own = std::make_unique<detail::MemberStore>(std::move(store), env.rank);
    detail::wait_for_world(*own, env.rank, env.world_size, deadline);
    return own;
  }
}

std::unique_ptr<Store> join_in_file(const RankEnv& env, const std::string& path,
                                    Deadline deadline) {
  FileStore::Member member{env.job_id, static_cast<uint32_t>(env.attempt),
                           static_cast<uint32_t>(env.world_size), static_cast<uint32_t>(env.rank)};
  auto store = FileStore::join(path, member, deadline);
  auto own = std::make_unique<detail::MemberStore>(std::move(store), env.rank);
  detail::take_seat(*own, env.rank, env.world_size);
  detail::wait_for_world(*own, env.rank, env.world_size, deadline);
  return own;
}

/// Rank 0: serves, and uses the table without a socket.
std::unique_ptr<Store> join_serving(const RankEnv& env, net::Credentials credentials,
                                    net::Listener listener, Deadline deadline,
                                    ServerHandle& handle) {
  StoreServer::Options options;
  options.credentials = std::move(credentials);
  options.max_pending = StoreServer::most_strangers(env.world_size);
  std::vector<net::Listener> listeners;
  listeners.push_back(std::move(listener));
  ServerHandle own_handle(std::make_unique<StoreServer>(std::move(options), std::move(listeners)));
  auto* server = own_handle.server();
  auto own = std::make_unique<detail::MemberStore>(server->local_store(), env.rank);
  detail::take_seat(*own, env.rank, env.world_size);
  detail::wait_for_world(*own, env.rank, env.world_size, deadline,
                         [server] { return server->turned_away(); });
  handle = std::move(own_handle);
  return own;
}

/// The other ranks. `enter` gives a connected store. An earlier group of these ranks may still be
/// closing the store that answers: then we come again until rank 0 opens the next.
template <class Enter>
std::unique_ptr<Store> join_at_rank0(const RankEnv& env, Deadline deadline, const Enter& enter) {
  auto start = Clock::now();
  net::BackOff back_off;
  while (true) {
    std::unique_ptr<TcpStore> store = enter();
    try {
      if (detail::take_seat(*store, env.rank, env.world_size) == detail::Seat::ours) {
        auto own = std::make_unique<detail::MemberStore>(std::move(store), env.rank);
        detail::wait_for_world(*own, env.rank, env.world_size, deadline);
        return own;
      }
    } catch (const PeerLost&) {
      if (!store || deadline.expired()) throw;  // else it closed before we had a seat
    }
    store.reset();
    check<Timeout>(
        back_off.pause(deadline),
        "rank {}: rank 0 did not open a new store within {:.1f} s; the last one is still closing",
        env.rank, seconds_since(start));
  }
}

std::unique_ptr<Store> join_on_one_host(const RankEnv& env, Deadline deadline,
                                        ServerHandle& server) {
  net::Credentials credentials{detail::meeting_of(env), std::nullopt};
  auto at = unix_store_endpoint(credentials.job_id);
  if (env.rank != 0)
    return join_at_rank0(env, deadline,
                         [&] { return TcpStore::connect(at, credentials, deadline); });
  // An attempt that was killed a moment ago may still hold the name.
  net::BackOff back_off;
  auto patience = net::sooner(deadline, std::chrono::seconds(2));
  auto listener = net::Listener::if_free(at);
  while (!listener && back_off.pause(patience)) listener = net::Listener::if_free(at);
  return join_serving(env, std::move(credentials),
                      listener ? std::move(*listener) : net::Listener(at), deadline, server);
}

std::unique_ptr<Store> join_over_tcp(const RankEnv& env, bool exact_port, Deadline deadline,
                                     ServerHandle& server, const net::Getenv& getenv) {
  check<UsageError>(!env.master_addr.empty(),
                    "MASTER_ADDR is not set, and nothing says that all {} ranks run on this host: "
                    "set MASTER_ADDR to rank 0's "
                    "host on every rank (127.0.0.1 if all run here; mpirun: -x MASTER_ADDR=HOST)",
                    env.world_size);
  auto credentials = detail::tcp_credentials(env, detail::meeting_of(env), getenv, false);
  auto ports = exact_port ? detail::PortRange{env.master_port, env.master_port}
                          : detail::ports_beside(env.master_port);
  if (env.rank == 0) {
    auto listener = detail::listen_at_first_free(env.master_addr, ports);
    if (!credentials.secret)
      log_warn("TRIREME_INSECURE=1: anyone who can reach {} may join this job",
               listener.endpoint().text());
    return join_serving(env, std::move(credentials), std::move(listener), deadline, server);
  }
  return join_at_rank0(env, deadline, [&] {
    auto found = detail::find_job_store(env.master_addr, ports, credentials, deadline);
    return std::make_unique<TcpStore>(std::move(found.socket), std::move(found.session), found.at,
                                      credentials);
  });
}

}  // namespace

ServerHandle::ServerHandle() = default;
ServerHandle::ServerHandle(std::unique_ptr<StoreServer> server) : server_(std::move(server)) {}
ServerHandle::ServerHandle(ServerHandle&&) noexcept = default;

ServerHandle& ServerHandle::operator=(ServerHandle&& other) noexcept {
  if (this == &other) return *this;
  ServerHandle old(std::move(*this));  // waits as a destructor does
  server_ = std::move(other.server_);
  linger_ = other.linger_;
  return *this;
}

ServerHandle::~ServerHandle() {
  if (!server_ || !server_->is_of_this_process()) return;
  bool unwinding = std::uncaught_exceptions() > 0;
  auto limit = unwinding ? std::min<Duration>(linger_, std::chrono::seconds(2)) : linger_;
  try {
    if (!close(Deadline::after(limit)))
      log_warn(
          "the store closes while other ranks still use it: they did not leave within {:.0f} s",
          std::chrono::duration<double>(limit).count());
  } catch (const std::exception& error) {
    log_error("the store did not close in order: {}", error.what());
  }
}

bool ServerHandle::close(Deadline deadline) {
  if (!server_ || !server_->is_of_this_process()) return true;
  server_->stop_listening();
  bool all_left = server_->wait_until_clients_left(deadline);
  server_->stop();
  server_.reset();
  return all_left;
}

std::unique_ptr<Store> open_store(const RankEnv& rank_env, const std::string& init_method,
                                  Deadline deadline, ServerHandle& server,
                                  const net::Getenv& getenv) {
  check<UsageError>(
      rank_env.world_size >= 1 && rank_env.rank >= 0 && rank_env.rank < rank_env.world_size,
      "rank {} of a world of {}: ranks go from 0 to world size - 1", rank_env.rank,
      rank_env.world_size);
  auto env = with_method(rank_env, init_method);
  bool exact_port = init_method.starts_with("tcp://");
  if (init_method.starts_with(kFile) && env.world_size > 1)
    return join_in_file(env, path_in(init_method), deadline);
  if (!env.store_endpoint.empty()) {
    auto at = net::Endpoint::parse(env.store_endpoint);
    auto credentials = at.is_unix() ? net::Credentials{env.job_id, std::nullopt}
                                    : detail::tcp_credentials(env, env.job_id, getenv, true);
    return join_launched(env, credentials, at, deadline);
  }
  if (env.world_size == 1) return std::make_unique<MemoryStore>();
  if (env.single_host()) return join_on_one_host(env, deadline, server);
  return join_over_tcp(env, exact_port, deadline, server, getenv);
}

}  // namespace trireme
