// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/device_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/offload.h"
#include "trireme/planner/element_bytes.h"
#include "trireme/planner/exchange_memory.h"

namespace trireme {
namespace {

/// Elements of which this rank has the optimizer's state.
int64_t owned(const MemoryQuestion& q, int64_t parameters) {
  if (q.stage == 0) return parameters;
  const auto units = padded_units(q.parameters, q.dp_shard);
  return std::accumulate(units.begin(), units.end(), int64_t{0}) / q.dp_shard;
}

/// Gradients that are between ranks at once: stages 2 and 3 use a few buffers in turn.
int64_t under_way(const MemoryQuestion& q, int64_t parameters, int64_t largest) {
  const int64_t bucket = std::max(q.bucket_elements, largest);
  const int64_t elements = q.stage < 2 ? parameters : std::min(parameters, 2 * bucket);
  return elements * q.wire_bytes;
}

/// Behind backward: the norm's blocks in float64 and their squares (optim/norm_aten.cc), and what a
/// rule of LibTorch's operators (optim/rules/rule_aten.cc) makes of the largest piece.
int64_t of_the_step(int64_t mine, int64_t largest) {
  constexpr int64_t kBlock = 1024, kFewest = 64, kMost = 2048, kDoubleBytes = 8;
  const int64_t blocks = std::clamp((mine + kBlock - 1) / kBlock, kFewest, kMost);
  return std::max(2 * blocks * kBlock * kDoubleBytes, 3 * std::min(largest, mine) * kFloatBytes);
}

}  // namespace

PlacedMemory place_memory(const MemoryQuestion& q, const RankMemory& rank,
                          const DevicePlacement& placement) {
  int64_t parameters = 0, largest = 0, states = 0;
  for (const auto& p : q.parameters) {
    parameters += p.numel();
    largest = std::max(largest, p.numel());
    states += state_numbers(q.optimizer, p);
  }
  PlacedMemory m{rank, {}};
  const int64_t mine = owned(q, parameters);
  // Activations and the gradient on its way (counted in buffers) are gone by then.
  const int64_t on_its_way =
      std::max<int64_t>(0, q.activation_kept + largest * q.gradient_bytes - q.activation_bytes);
  m.device.activations = std::max(rank.activations, of_the_step(mine, largest) - on_its_way);
  m.device.snapshots = 0;
  m.host.snapshots = rank.snapshots;
  m.device.buffers -= q.group_bytes + placement.codec_bytes;
  m.host.buffers += q.group_bytes + placement.codec_bytes;
  if (placement.codec_bytes > 0)
    m.host.buffers += parameters * q.gradient_bytes;  // every bucket, on its way
  else if (placement.staged && (q.dp_shard > 1 || q.group_bytes > 0))
    m.host.buffers += under_way(q, parameters, largest);
  if (!placement.host_optimizer) return m;
  const int64_t numbers = parameters > 0 ? states / parameters * mine : 0;
  m.device.optimizer = 0;
  m.host.optimizer = mine * kFloatBytes;  // masters, or copies of float32 weights
  m.host.buffers += mine * q.gradient_bytes;
  if (q.states_on_disk) {
    const int64_t at_once = std::min(q.state_buffer_elements, mine);
    const int64_t of_each = parameters > 0 ? states / parameters * kFloatBytes : 0;
    m.device.buffers -= at_once * (of_each + q.master_bytes);
    m.host.buffers += at_once * of_each;
  } else {
    m.host.optimizer += numbers * kFloatBytes;
  }
  return m;
}

PlacedMemory place_memory(const Config& c, const MemoryPlan& plan) {
  DevicePlacement placement;
  placement.host_optimizer = c.applies("zero_optimization.offload_optimizer.device") &&
                             c.section<OffloadSection>().optimizer.device != "none";
  const int ranks = static_cast<int>(plan.batches.dp);
  const CompressionOptions codec = c.section<CompressionSection>().codec;
  if (ranks > 1)
    placement.codec_bytes =
        codec_bytes(codec, ranks, plan.question.gradient_bytes, plan.question.parameters);
  placement.staged = ranks > 1;  // comm.backend names none that reads a device's memory
  return place_memory(plan.question, plan.rank, placement);
}

std::string placed_table(const PlacedMemory& memory, const std::string& kind, bool activations,
                         const RankMemory* measured) {
  struct Row {
    const char* name;
    int64_t RankMemory::*of;
  };
  constexpr Row kRows[] = {
      {"weights", &RankMemory::weights},     {"gradients", &RankMemory::gradients},
      {"optimizer", &RankMemory::optimizer}, {"activations", &RankMemory::activations},
      {"buffers", &RankMemory::buffers},     {"snapshots", &RankMemory::snapshots}};
  std::string text;
  const auto line = [&](const std::string& name, int64_t there, int64_t found, int64_t here) {
    text += fmt::format("{:<12}{:>16}", name, mebibytes(there));
    if (measured) text += fmt::format("{:>12}", mebibytes(found));
    text += fmt::format("{:>16}\n", mebibytes(here));
  };
  text += fmt::format("{:<12}{:>16}{}{:>16}\n", "", "on " + kind, measured ? "    measured" : "",
                      "in host memory");
  for (const Row& row : kRows) {
    if (row.of == &RankMemory::activations && !activations) continue;
    if (row.of == &RankMemory::snapshots && memory.host.snapshots == 0) continue;
    line(row.name, memory.device.*row.of, measured ? measured->*row.of : 0, memory.host.*row.of);
  }
  line("total", memory.device.total(), measured ? measured->total() : 0, memory.host.total());
  return text;
}

MemoryVerdict judge_device_memory(const RankMemory& m, const std::string& kind, int64_t capacity) {
  using Fit = MemoryVerdict::Fit;
  const int64_t counted =
      std::max(static_cast<int64_t>(kPredicted * static_cast<double>(m.total())),
               m.weights + m.gradients + m.optimizer);
  MemoryVerdict v;
  v.text = fmt::format("each rank needs {} of its device's memory", mebibytes(m.total()));
  if (capacity == 0) {
    v.text += fmt::format(", and how much {} has is not known here", kind);
  } else if (counted > capacity) {
    v.fit = Fit::impossible;
    v.text += fmt::format(", and {} has {}", kind, mebibytes(capacity));
  } else if (m.total() > capacity) {
    v.fit = Fit::tight;
    v.text += fmt::format(", and {} has {}, about as much", kind, mebibytes(capacity));
  } else {
    v.text += fmt::format("; {} has {}: that fits", kind, mebibytes(capacity));
  }
  return v;
}

}  // namespace trireme
