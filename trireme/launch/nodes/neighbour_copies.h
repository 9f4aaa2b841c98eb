// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/launch/nodes/part_transfer.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// While workers run: each launcher gets a copy of what the ranks of the node before it have in
/// memory of a step, so that it is not lost with that node. The launchers copy one save after the
/// other, all of them the same; what ranks make meanwhile is passed over, and no rank waits. Of the
/// save each keeps a copy of its own ranks' parts, too, which write over theirs. What was copied
/// before stays until all nodes have the next.
class NeighbourCopies {
 public:
  struct Place {
    int node = 0;
    std::vector<int> workers_of_nodes;  // of more than one
  };
  /// `table`: for the nodes of this attempt. `server` gives the parts to the next node, at `host`.
  NeighbourCopies(PartServer& server, std::string host, net::Credentials credentials,
                  std::unique_ptr<Store> table, Place place);
  ~NeighbourCopies();
  NeighbourCopies(const NeighbourCopies&) = delete;

  /// Takes note of memory that ranks have handed over.
  void see(const SnapshotHolder& holder);
  /// Ends it: all that is held, sealed, of this node's ranks and of those of the node before it.
  std::vector<HandedSnapshot> take();

 private:
  struct Copies {
    std::vector<HandedSnapshot> own, others;
  };
  /// Memory that its rank may be writing to.
  struct Seen {
    HandedSnapshot memory;
    std::string head;                  // as it was looked at
    std::optional<SnapshotNote> note;  // of a snapshot that is whole and that a program takes
  };
  std::vector<std::shared_ptr<Seen>> with(const std::string& save);
  static const std::optional<SnapshotNote>& look_at(Seen& seen);
  void run();
  /// One save; "": every node has its copies.
  std::string copy(const std::string& save);
  std::string newest_save();
  std::vector<HandedSnapshot> stage(const std::string& save);
  bool ends() const { return stop_; }

  PartServer& server_;
  const std::string host_;
  const net::Credentials credentials_;
  const std::unique_ptr<Store> table_;
  const Place place_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Seen>> seen_;
  uint64_t changes_ = 0;      // of the holder
  Copies whole_, under_way_;  // of the thread; take() has ended it
  std::string told_;          // its last key of "copied"
  std::thread thread_;
};

}  // namespace trireme::launch
