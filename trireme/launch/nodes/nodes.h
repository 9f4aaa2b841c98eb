// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"

// The launchers of a job, one on each node, and what they agree on. Node 0 has rank 0.
namespace trireme::launch {

/// Why an attempt was broken off. The first one that the job's store saw counts, on every node, so
/// that no two clocks are compared.
struct StopCause {
  int node = 0;
  std::string sentence;  // "rank 3 (pid 4711) was ended by SIGKILL"
  std::string reported;  // what the worker reported by itself; "": nothing
  bool may_restart = false;

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

  struct Master {
    std::string address;
    int port = 0;
  };
  /// All nodes call it. MASTER_ADDR and MASTER_PORT of this attempt, where rank 0 of a Python job
  /// listens. Timeout, PeerLost.
  virtual Master begin(int attempt) = 0;
  /// Becomes readable when the attempt is over on all nodes, or was broken off; -1: never.
  virtual int fd() const = 0;
  virtual std::optional<StopCause> stopped() = 0;
  /// Breaks the attempt off on all nodes, unless that has happened. What counts.
  virtual StopCause stop(const StopCause& ours) = 0;
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
TRIREME_API std::unique_ptr<Nodes> meet_nodes(const RunOptions& options, const std::string& job_id,
                                              const std::string& secret_file,
                                              const std::function<bool()>& asked_to_stop,
                                              const Getenv& env = process_env);

}  // namespace trireme::launch
