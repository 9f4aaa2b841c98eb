// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/planner/memory_plan.h"
#include "trireme/planner/memory_verdict.h"

// The memory of a rank that computes on a device, by where it lies: on the device, or in the host's
// memory, most of which is pinned there. Pure, but for what reads a configuration.
namespace trireme {

struct DevicePlacement {
  bool host_optimizer = false;  // offload_optimizer.device: cpu or nvme
  bool staged = true;           // the group reads host memory alone: no NCCL
  int64_t codec_bytes = 0;      // of q.exchange_bytes: codecs compute in host memory
};

struct PlacedMemory {
  RankMemory device, host;
};

/// `rank`: rank_memory(q). Where gradients go through pinned memory, one copy of what may be under
/// way at once is counted. On a device the activations' row counts the norm's and the optimizer's
/// working memory where that is more: on the CPU they need none.
TRIREME_API PlacedMemory place_memory(const MemoryQuestion& q, const RankMemory& rank,
                                      const DevicePlacement& placement);
/// Of a plan for the configuration's run, if it computes on a device.
TRIREME_API PlacedMemory place_memory(const Config& config, const MemoryPlan& plan);

/// The rows of a plan by place, for people: `kind` is "cuda". Without activations if they are not
/// known. `measured`: on the device; null: nothing was.
TRIREME_API std::string placed_table(const PlacedMemory& memory, const std::string& kind,
                                     bool activations, const RankMemory* measured = nullptr);

/// One rank's share of a device against its capacity; 0: not known.
TRIREME_API MemoryVerdict judge_device_memory(const RankMemory& on_device, const std::string& kind,
                                              int64_t capacity);

}  // namespace trireme
