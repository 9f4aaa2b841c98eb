// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/steps/snapshot/part_memory.h"
#include "trireme/launch/nodes/neighbour_copies.h"
#include "trireme/launch/nodes/nodes.h"
#include "trireme/launch/nodes/part_transfer.h"

namespace trireme::launch {

/// How the launchers of several nodes bring a step that is in their memory, each with what its own
/// ranks had, to the workers that they start again.
class SharedSteps final : public KeptSnapshots {
 public:
  /// `neighbour`: each node has a copy of what the node before it holds, too.
  SharedSteps(Nodes& nodes, bool neighbour) : nodes_(nodes), neighbour_(neighbour) {}

  void take(std::vector<HandedSnapshot> handed, const GenerationFence& fence) override;
  void see(const SnapshotHolder& holder) override;
  /// When an attempt has begun and before its workers start, on every node. The text for their
  /// environment; "": they take the step from the disk, which is said where something was in
  /// memory. Does not throw for what other nodes or the store do.
  std::string agree(const Nodes::Begun& begun, const std::function<bool()>& asked_to_stop);

 private:
  /// Where others get parts from this launcher; nullptr, which is said once: nowhere.
  PartServer* server();
  HostParts own_parts();
  std::string hand_on(const Nodes::Begun& begun, const std::function<bool()>& asked_to_stop);
  void copy_to_neighbours();

  Nodes& nodes_;
  const bool neighbour_;
  PartMemory memory_;
  std::optional<PartServer> server_;
  bool no_server_ = false;
  std::optional<NeighbourCopies> copies_;
};

}  // namespace trireme::launch
