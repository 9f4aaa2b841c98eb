// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"
#include "trireme/net/auth.h"
#include "trireme/store/store.h"

// The launchers of a job, one on each node, and what they agree on. Node 0 has rank 0.
namespace trireme::launch {

/// Why an attempt was broken off. The first one that the job's store saw counts, on every node, so
/// that no two clocks are compared.
struct StopCause {
  int node = 0;
  std::string sentence;  // "rank 3 (pid 4711) was ended by SIGKILL"
  std::string reported;  // what the worker reported by itself; "": nothing
  /// The workers start again after it: the node that says so first decides for all.
  bool may_restart = false;
  /// Whether the restart is one of --max-restarts. It is not where nodes have come or gone.
  bool counts = true;

  bool operator==(const StopCause&) const = default;
};
TRIREME_API std::string to_text(const StopCause& cause);
/// Corrupt: not one of ours.
TRIREME_API StopCause read_stop_cause(const std::string& text);

/// One attempt after the other: begin(), the workers run, finish(). One thread at a time, except
/// where it says otherwise.
class TRIREME_API Nodes {
 public:
  virtual ~Nodes() = default;

  virtual int node_rank() const = 0;
  virtual const std::vector<int>& workers_of_nodes() const = 0;
  /// For TRIREME_STORE.
  virtual std::string store_address() const = 0;

  struct Begun {
    std::string
        master_address;  // MASTER_ADDR and MASTER_PORT, where rank 0 of a Python job listens
    int master_port = 0;
    int attempt = 0;   // larger than any before: 0, 1, …
    int restarts = 0;  // of --max-restarts, so far
    /// Where generations are claimed, and the number of this one there; "": nowhere.
    std::string claims = {};
    int64_t claim = 0;
    /// Set: no workers start here any more, and the launcher returns it.
    std::optional<int> exit_code = {};
  };
  /// All nodes call it; what the two functions above say holds for this attempt. `restarts`: those
  /// that this node has seen. Returns early when `asked_to_stop` does with true. Timeout, PeerLost.
  virtual Begun begin(int restarts, const std::function<bool()>& asked_to_stop) = 0;
  /// Becomes readable when the attempt is over on all nodes, or was broken off; -1: never.
  virtual int fd() const = 0;
  virtual std::optional<StopCause> stopped() = 0;
  /// Breaks the attempt off on all nodes, unless that has happened. What counts.
  virtual StopCause stop(const StopCause& ours) = 0;
  /// The job's store as workers have it, on a connection of its own. When an attempt has begun.
  virtual std::unique_ptr<Store> job_store() = 0;
  /// Whether the job can go on without some of them.
  virtual bool come_and_go() const { return false; }
  /// This node was asked to stop, and so were its workers.
  virtual void leaves() {}
  /// The workers of this node have ended because they lost others: what is known of those, which
  /// may take seconds to be seen.
  virtual std::optional<StopCause> why_peers_are_lost() { return stopped(); }
  /// Where other nodes reach what this launcher serves beside the store; nullopt: nobody is there.
  struct Door {
    std::string host;
    net::Credentials credentials;
  };
  virtual std::optional<Door> door() const { return std::nullopt; }
  /// Of the attempt that has begun: a table that all of its nodes see, on a connection of its own.
  /// nullptr: the store is gone.
  virtual std::unique_ptr<Store> own_table() { return nullptr; }
  struct End {
    bool well = true;
    StopCause otherwise;  // where not
  };
  /// When the workers of this node are gone: returns when those of the others are too, with the
  /// cause where the attempt was broken off. Where ours did not end well, the others have seconds
  /// to end by themselves. Returns early when `asked_to_stop` does with true.
  virtual std::optional<StopCause> finish(const End& here,
                                          const std::function<bool()>& asked_to_stop) = 0;
};

/// Its store is on loopback, with a fresh secret in `secret_file`.
TRIREME_API std::unique_ptr<Nodes> one_node(const RunOptions& options, const std::string& job_id,
                                            const std::string& secret_file);

/// Waits for the launchers of all nodes, which show each other the secret of net/secret.h (a copy
/// is left in `secret_file`); nullptr: asked to stop. The node whose address the options name keeps
/// the store. UsageError: no secret, a wrong one, a node that is there twice, other flags
/// elsewhere; ResourceError: the port is taken; Timeout names the nodes that did not come.
/// With --nnodes=MIN:MAX it returns as soon as there is a store, and begin() waits for the others:
/// which nodes take part may differ from one attempt to the next (membership/membership.h).
TRIREME_API std::unique_ptr<Nodes> meet_nodes(const RunOptions& options, const std::string& job_id,
                                              const std::string& secret_file,
                                              const std::function<bool()>& asked_to_stop,
                                              const Getenv& env = process_env);

}  // namespace trireme::launch
