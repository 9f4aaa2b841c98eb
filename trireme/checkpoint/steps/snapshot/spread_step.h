// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

// A step in memory whose parts lie on several hosts: which one all go on from, and who gets what
// from whom. Pure: every host computes the same from the same reports.
namespace trireme {

/// What one rank had of a save, as the host says that holds it.
struct SpreadPart {
  std::string run_dir, save;  // as SnapshotNote has them
  int64_t step = 0, rank = 0, world = 1;
  uint64_t bytes = 0;
  bool behind = false;  // a later step is in the run folder; only who holds rank
                        // 0's part knows
  bool operator==(const SpreadPart&) const = default;
  TRIREME_FIELDS(run_dir, save, step, rank, world, bytes, behind)
};

/// A host's report.
struct HostParts {
  /// The last attempt in which it has agreed with others on a step, or on none; its parts are of
  /// that one's workers, or what these began with. -1: it has just come.
  int64_t attempt = -1;
  std::vector<SpreadPart> parts;
  std::string address;  // where the others get them; "": nowhere
  uint64_t room = 0;    // bytes of memory that are left there
  TRIREME_FIELDS(attempt, parts, address, room)
};

struct SpreadStep {
  std::string run_dir, save;
  int64_t step = 0;
  struct Rank {
    uint64_t bytes = 0;
    std::vector<size_t> hosts;  // that have its part, in order
  };
  std::vector<Rank> ranks;
};

struct SpreadChoice {
  std::optional<SpreadStep> step;
  std::string why_not;  // where there is none; "": nothing was in memory that is
                        // newer than the disk
};

/// The newest step of which each part is on some host, and which all hosts have room for. Hosts
/// that were away while others went on have nothing to say: what they hold is of an older attempt.
TRIREME_API SpreadChoice choose_spread_step(const std::vector<HostParts>& hosts);

/// From whom `host` gets this rank's part: itself, if it has it, and nobody else. Otherwise all
/// that have it, in the order in which they are asked until one gives it; each is first for about
/// as many.
TRIREME_API std::vector<size_t> sources_of(const SpreadStep::Rank& rank, size_t host);

}  // namespace trireme
