// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/steps/snapshot/held_snapshot.h"

namespace trireme {

/// A snapshot's memory as a worker handed it over. Nothing of it is trusted.
struct HandedSnapshot {
  UniqueFd fd;
  int rank = 0;
};

/// One save, as far as it is in memory.
struct HeldSave {
  struct Part {
    std::unique_ptr<const HeldSnapshot> snapshot;
    size_t handed = 0;  // the number of its memory
  };
  std::map<int64_t, Part> ranks;

  const SnapshotNote& note() const { return ranks.begin()->second.snapshot->note(); }
  bool is_whole() const { return static_cast<int64_t>(ranks.size()) == note().world; }
  /// The first rank that is not there.
  int64_t missing() const;
  /// Of a whole one; nothing is left here.
  std::vector<std::unique_ptr<const HeldSnapshot>> take_snapshots();
};

struct HeldSaves {
  std::vector<HeldSave> saves;      // of each run folder the newest step first
  std::set<int> ranks;              // that handed over memory, whatever is in it
  std::vector<std::string> faults;  // sentences: what was passed over. What was being made is not
};
TRIREME_API HeldSaves held_saves(const std::vector<HandedSnapshot>& handed);

/// Rank 0's snapshot tells whether its step, or one that was saved after it, is in the run folder.
/// Of a save under way its temporary folder is there, which is renamed to the step, or removed.
/// ResourceError: the folder has gone, or does not tell.
TRIREME_API bool is_published(const SnapshotNote& note);
/// … whether it holds one that was saved after it. The names of steps are looked at, and no byte in
/// them.
TRIREME_API bool is_behind_the_disk(const SnapshotNote& note);

}  // namespace trireme
