// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/encoding.h"

// What launchers say to each other about parts of a step in memory, beside HostParts
// (checkpoint/steps/snapshot/spread_step.h). docs/control_protocol.md is the grammar, and
// tests/formats keeps what was said when it landed.
namespace trireme::launch {

/// Types of frames (net/frame.h).
enum class PartFrame : uint16_t { wanted = 96, head = 97, bytes = 98, end = 99 };

struct PartWanted {
  std::string save;
  int64_t rank = 0;
  TRIREME_FIELDS(save, rank)
};
struct PartHead {
  uint64_t bytes = 0;
  std::string refusal;  // "": it follows
  TRIREME_FIELDS(bytes, refusal)
};
struct PartEnd {
  uint64_t sum = 0;
  TRIREME_FIELDS(sum)
};

/// In the job's store: what a node has copied of its ranks' memory, for the next one.
struct StagedParts {
  std::string fault, address;
  std::vector<std::pair<int64_t, uint64_t>> parts;  // rank, bytes
  TRIREME_FIELDS(fault, address, parts)
};

}  // namespace trireme::launch
