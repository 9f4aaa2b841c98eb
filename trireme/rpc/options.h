// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/channel/channel.h"
#include "trireme/rpc/remote.h"
#include "trireme/store/store.h"

namespace trireme::rpc {

/// A kind of way to other workers: makes this worker's hub of that kind.
struct Road {
  std::string kind;  // "local", "tcp": workers meet by those that both have, the first one first
  std::function<std::shared_ptr<channel::Hub>(const channel::Peer& self, channel::Accept accept)>
      make;
};

struct Options {
  /// Of this worker: no other of the job has it at the same time. 1 to 256 printable characters.
  /// "": "trainer1", where `trireme run --role` or torchrun has given this process a role.
  std::string name = {};
  /// What others may call here; none: this worker only calls.
  std::vector<Offer> offers = {};
  /// Of calls that are given none, and of finding a worker. Duration::max(): none.
  Duration deadline = std::chrono::seconds(60);
  /// The job's store: a connection of this worker's own. None: the one of the job that this process
  /// belongs to, as its launcher says (rendezvous/job_table.h); without a launcher, workers of this
  /// process find each other.
  std::shared_ptr<Store> store = {};
  /// None: shared memory to workers of this host, TCP under the job's secret to those of others.
  std::vector<Road> roads = {};
  /// Its rank in the job, by which it is also found. -1: the process's (RANK) where the store is
  /// its job's and none of its other workers has it; else none.
  int rank = -1;
  /// Ranks that shutdown() waits for although they have not joined yet: 0 to world - 1. -1: those
  /// of the job (WORLD_SIZE) where the store is its job's, else none. 0: none.
  int world = -1;
  /// Workers of different generations do not see each other. 0: that of the job where the store is
  /// its job's, which counts how often it was started again.
  uint64_t generation = 0;
  /// Handlers that compute at a time; 0: as many as there are CPUs, at least two.
  int threads = 0;
  /// Threads in all, those whose handlers wait for other calls among them; 0: four more.
  int most_threads = 0;
  /// A call waits, until its deadline, while more bytes than this wait to leave for its peer, or
  /// more calls are unanswered by it. One that fits into a chunk (channel/channel.h) overtakes
  /// larger ones: it waits where so many bytes of its like are unanswered too.
  uint64_t most_unsent = uint64_t{64} << 20;
  uint64_t most_waiting = 16384;
};

struct ShutdownOptions {
  /// Waits until every worker, and each rank of Options::world, has called shutdown() or is gone,
  /// and answers their calls meanwhile.
  /// False: leaves as soon as the calls that are under way, in both directions, are done.
  bool graceful = true;
  /// What is not done by then is cut off: Timeout says what that was, and the worker has left all
  /// the same.
  Duration deadline = std::chrono::seconds(60);
};

}  // namespace trireme::rpc
