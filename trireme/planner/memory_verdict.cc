// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_verdict.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/planner/memory_plan.h"

namespace trireme {
namespace {

std::string size(double bytes) {
  constexpr double kTiB = 1099511627776.0;
  return bytes < 1e18 && bytes < kTiB ? mebibytes(static_cast<int64_t>(bytes))
                                      : fmt::format("{:.1f} TiB", bytes / kTiB);
}

}  // namespace

MemoryVerdict judge_memory(const RankMemory& rank, int ranks, const HostMemory& host) {
  using Fit = MemoryVerdict::Fit;
  // In double: what is impossible may be beyond 64 bits.
  const double one = static_cast<double>(rank.weights) + static_cast<double>(rank.gradients) +
                     static_cast<double>(rank.optimizer) + static_cast<double>(rank.activations) +
                     static_cast<double>(rank.buffers) + static_cast<double>(rank.snapshots);
  const double all = one * ranks;
  // States and copies of them are counted, not estimated.
  const double least_of_one =
      std::max(kPredicted * one,
               static_cast<double>(rank.weights) + static_cast<double>(rank.gradients) +
                   static_cast<double>(rank.optimizer) + static_cast<double>(rank.snapshots));
  MemoryVerdict v;
  v.text = ranks == 1 ? fmt::format("1 rank needs {}", size(one))
                      : fmt::format("{} ranks need {} ({} each)", ranks, size(all), size(one));
  const auto capacity = static_cast<double>(host.capacity),
             available = static_cast<double>(host.available),
             process = static_cast<double>(host.process_limit);
  if (process > 0 && least_of_one > process) {
    v.fit = Fit::impossible;
    v.text += fmt::format(", and {} gives a process {}", host.process_limit_name, size(process));
  } else if (capacity > 0 && least_of_one * ranks > capacity) {
    v.fit = Fit::impossible;
    v.text += fmt::format(", and {} has {}", host.limit, size(capacity));
  } else if (available > 0 && all > available) {
    v.fit = Fit::tight;
    v.text += fmt::format(", and of {} {} are available now", size(capacity), size(available));
  } else if (available > 0) {
    v.text += fmt::format("; {} are available: that fits", size(available));
  }
  return v;
}

}  // namespace trireme
