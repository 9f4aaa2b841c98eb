// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/store.h"

namespace trireme {

/// The store's server where this process runs it (rank 0 of a job without a launcher of ours);
/// empty elsewhere. The store closes last: close() and the destructor wait until the others have
/// left. It does not matter whether it or the Store is destroyed first.
class TRIREME_API ServerHandle {
 public:
  ServerHandle();
  explicit ServerHandle(std::unique_ptr<StoreServer> server);
  ServerHandle(ServerHandle&&) noexcept;
  ServerHandle& operator=(ServerHandle&&) noexcept;
  /// close() within the linger time; within two seconds when an exception is being unwound.
  ~ServerHandle();

  bool serving() const { return server_ != nullptr; }
  StoreServer* server() const { return server_.get(); }
  /// Takes no new clients, waits until all have closed their connections or the deadline passes,
  /// then stops. Returns whether all had left. Where nothing is served: true at once.
  bool close(Deadline deadline);
  /// How long the destructor may wait; 30 s unless told otherwise.
  void set_linger(Duration linger) { linger_ = linger; }

 private:
  std::unique_ptr<StoreServer> server_;
  Duration linger_ = std::chrono::seconds(30);
};

/// Opens the job's store and returns when all ranks have joined (rendezvous/join.h says under which
/// keys). Every rank calls it once per group it wants to build, in the same order.
///   a world of one   a table in memory
///   TRIREME_STORE    our launcher serves it, under job_id: connect; TCP takes the secret, a Unix
///                    socket the same user
///   all on one host  rank 0 serves an abstract Unix socket named after user, job and MASTER_PORT;
///                    no secret
///   several hosts    rank 0 serves the first free port of MASTER_PORT+1…+8 at MASTER_ADDR, and the
///                    others find it by the job id; takes a secret (net/secret.h) or
///                    TRIREME_INSECURE=1
///   file:///path     a file that all ranks reach and that does not exist yet
///   (store/file/file_store.h);
///                    no secret: who may write the file may join
/// `init_method`: "env://" for the first four; "tcp://host:port" names where rank 0 serves (exactly
/// that port, and TRIREME_STORE is not looked at), with the rank and size in `rank_env` as the
/// caller gives them; a loopback host means one host. `env` is where the secret's variables are
/// read. UsageError, ResourceError (port in use), Timeout (naming the missing ranks).
TRIREME_API std::unique_ptr<Store> open_store(const RankEnv& rank_env,
                                              const std::string& init_method, Deadline deadline,
                                              ServerHandle& server,
                                              const net::Getenv& env = net::process_env);

}  // namespace trireme
