// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"

namespace trireme {

/// What a launcher keeps of the snapshots of workers that have died. One thread at a time.
class TRIREME_API KeptSnapshots {
 public:
  virtual ~KeptSnapshots() = default;
  /// Workers are dead, of which one did not end well; this is what they left. `fence`: theirs.
  virtual void take(std::vector<HandedSnapshot> handed, const GenerationFence& fence) = 0;
  /// While workers run: what of theirs `holder` holds makes older snapshots superfluous.
  virtual void see(const SnapshotHolder& holder) = 0;
  /// What all ranks of the job had comes here, and not to several launchers.
  virtual bool has_whole_steps() const { return false; }
  /// Workers that live ask for the newest step; empty: they take it from the disk.
  virtual std::vector<const HandedSnapshot*> offer() { return {}; }
  /// Whoever trains now, where ranks come and go, has a whole snapshot.
  virtual void nothing_older_is_needed() {}
};

}  // namespace trireme
