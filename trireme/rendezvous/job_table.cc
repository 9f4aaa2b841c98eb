// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/job_table.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/process_mark.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/admission.h"
#include "trireme/rendezvous/job_ports.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/tcp_store.h"
#include "trireme/store/unix_store.h"

namespace trireme {
namespace {

/// A table that this process keeps, as long as somebody in it has a connection.
struct Kept {
  explicit Kept(std::unique_ptr<StoreServer> of_others) : server(std::move(of_others)) {
    store = server.serving() ? server.server()->local_store() : std::make_unique<MemoryStore>();
  }
  const ProcessMark made_in;
  ServerHandle server;
  std::unique_ptr<Store> store;
};

struct Lease {
  std::shared_ptr<Kept> kept;
  std::unique_ptr<Store> store;
};

/// The tables that this process keeps, by the names of their meetings. The process's own by nature:
/// its parts find each other here and have nothing else in common. Never destroyed, since a thread
/// may leave a table as the program ends.
struct KeptTables {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Kept>> tables;
};
KeptTables& kept_tables() {
  static auto* const tables = new KeptTables();
  return *tables;
}

/// `serve`: for the first who asks; null: nobody else is served.
template <class Serve>
std::shared_ptr<Store> of_this_process(const std::string& meeting, Deadline deadline,
                                       const Serve& serve) {
  KeptTables& all = kept_tables();
  std::lock_guard lock(all.mutex);
  std::weak_ptr<Kept>& place = all.tables[meeting];
  std::shared_ptr<Kept> kept = place.lock();
  if (!kept || !kept->made_in.is_here()) place = kept = std::make_shared<Kept>(serve());
  auto lease = std::make_shared<Lease>();
  lease->store = kept->store->clone(deadline);
  lease->kept = std::move(kept);
  Store* const store = lease->store.get();
  return {std::move(lease), store};
}

std::unique_ptr<StoreServer> serve_at(net::Listener listener, net::Credentials credentials,
                                      int world_size) {
  StoreServer::Options options;
  options.credentials = std::move(credentials);
  options.max_pending = StoreServer::most_strangers(world_size);
  std::vector<net::Listener> listeners;
  listeners.push_back(std::move(listener));
  return std::make_unique<StoreServer>(std::move(options), std::move(listeners));
}

std::shared_ptr<Store> on_one_host(const RankEnv& env, Deadline deadline) {
  net::Credentials credentials{detail::meeting_of(env), std::nullopt};
  const auto at = unix_store_endpoint(credentials.job_id);
  if (env.rank != 0) return TcpStore::connect(at, credentials, deadline);
  return of_this_process(credentials.job_id, deadline, [&] {
    // An attempt that was killed a moment ago may still hold the name.
    net::BackOff back_off;
    const auto patience = net::sooner(deadline, std::chrono::seconds(2));
    auto listener = net::Listener::if_free(at);
    while (!listener && back_off.pause(patience)) listener = net::Listener::if_free(at);
    return serve_at(listener ? std::move(*listener) : net::Listener(at), credentials,
                    env.world_size);
  });
}

std::shared_ptr<Store> over_tcp(const RankEnv& env, Deadline deadline, const net::Getenv& getenv) {
  check<UsageError>(!env.master_addr.empty(),
                    "MASTER_ADDR is not set, and nothing says that all {} ranks run on this host: "
                    "set MASTER_ADDR to rank 0's host on every rank (127.0.0.1 if all run here)",
                    env.world_size);
  auto credentials = detail::tcp_credentials(env, detail::meeting_of(env), getenv, false);
  const auto ports = detail::ports_beside(env.master_port);
  if (env.rank != 0) {
    auto found = detail::find_job_store(env.master_addr, ports, credentials, deadline);
    return std::make_shared<TcpStore>(std::move(found.socket), std::move(found.session), found.at,
                                      credentials);
  }
  return of_this_process(credentials.job_id, deadline, [&] {
    auto listener = detail::listen_at_first_free(env.master_addr, ports);
    if (!credentials.secret)
      log_warn("TRIREME_INSECURE=1: anyone who can reach {} may join this job",
               listener.endpoint().text());
    return serve_at(std::move(listener), credentials, env.world_size);
  });
}

}  // namespace

std::shared_ptr<Store> open_job_table(const RankEnv& env, Deadline deadline,
                                      const net::Getenv& getenv) {
  if (!env.store_endpoint.empty()) {
    const auto at = net::Endpoint::parse(env.store_endpoint);
    const auto credentials = at.is_unix() ? net::Credentials{env.job_id, std::nullopt}
                                          : detail::tcp_credentials(env, env.job_id, getenv, true);
    return std::make_shared<PrefixStore>(TcpStore::connect(at, credentials, deadline),
                                         fmt::format("attempt/{}", env.attempt));
  }
  if (env.world_size == 1)
    return of_this_process("", deadline, [] { return std::unique_ptr<StoreServer>(); });
  // open_store() meets under the job's own name at the same time.
  RankEnv apart = env;
  apart.job_id += "#table";
  if (env.single_host()) return on_one_host(apart, deadline);
  return over_tcp(apart, deadline, getenv);
}

}  // namespace trireme
