// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/base/process/process_mark.h"
#include "trireme/net/auth.h"
#include "trireme/net/listener.h"
#include "trireme/store/store.h"

namespace trireme {

/// Serves a store's table from one thread of its own, over TCP and over an abstract Unix socket at
/// once if asked. Who comes in: at TCP whoever proves the secret of `credentials` (where they have
/// none: whoever names the job); at a Unix socket processes of the same user that name the job. A
/// connection that has not proved itself within `handshake_limit` is closed, and at most
/// `max_pending` such are held: a newcomer takes the place of the oldest that has said nothing, or
/// of the oldest. So a flood of connections costs strangers theirs, and a rank that knocks again
/// gets in. Where there is a secret, every frame after the handshake is sealed (net/seal.h), and a
/// connection with a frame that its client did not send so is closed. One client cannot stop
/// another: every connection has bounded memory and waits alone. Threads: every member may be
/// called from any thread. The destructor stops at once; a caller who wants the store to close last
/// calls wait_until_clients_left() before.
class TRIREME_API StoreServer {
 public:
  /// How many connections without a proof are held for a world of this size: all ranks may come at
  /// once.
  static constexpr size_t most_strangers(int world_size) {
    return std::max<size_t>(64, 4 * static_cast<size_t>(world_size));
  }

  struct Options {
    net::Credentials credentials;
    size_t max_bytes = size_t{256} << 20;  // of keys and values together
    size_t max_clients = 16384;
    size_t max_pending = most_strangers(1);
    Duration handshake_limit = net::kHandshakeLimit;
  };

  /// Listens at `at` (loopback and port 0 unless told otherwise). ResourceError when it is taken.
  explicit StoreServer(Options options,
                       const net::Endpoint& at = net::Endpoint::tcp({"127.0.0.1", 0}));
  StoreServer(Options options, std::vector<net::Listener> listeners);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;

  /// With the ports that the kernel chose, in the order of the listeners.
  std::vector<net::Endpoint> endpoints() const;
  /// The table without a socket; works on after the server has stopped, and does not count as a
  /// client.
  std::unique_ptr<Store> local_store();

  /// Authenticated connections now.
  size_t clients() const;
  /// No new clients, and the addresses are free again; those who are connected go on.
  void stop_listening();
  /// The same, and the server ends by itself when the last client has left.
  void end_with_the_last_client();
  /// Whether the last connection closed before the deadline.
  bool wait_until_clients_left(Deadline deadline);
  /// "10.0.0.3: wrong secret": the first refusals, one line per source, for the text of a join that
  /// failed.
  std::vector<std::string> refusals() const;
  /// Connections so far that ended before they had proved who they are.
  size_t strangers() const;
  /// Both in one sentence, for the text of a join that failed; "" when there was nobody.
  std::string turned_away() const;
  /// Closes all connections and joins the thread. Again: nothing.
  void stop();
  /// False in a forked child, which has no such thread: it leaves everything as it is.
  bool is_of_this_process() const { return made_in_.is_here(); }

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  const ProcessMark made_in_;
};

}  // namespace trireme
