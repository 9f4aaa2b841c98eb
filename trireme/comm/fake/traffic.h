// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/comm/group.h"

// Counts what a fake world was asked to move, to size a layout without running its ranks.
namespace trireme {

struct FakeTraffic {
  struct Count {
    uint64_t calls = 0;
    uint64_t bytes = 0;
  };
  /// Counts by operation: "all_reduce", "send" and so on. Bytes are those of nccl-tests' size
  /// column: the tensor for all_reduce, broadcast, reduce, send and recv; all ranks' parts together
  /// for all_gather, reduce_scatter, gather and scatter; this rank's input for all_to_all; 0 for
  /// barrier.
  std::map<std::string, Count> operations;

  Count total() const {
    Count sum;
    for (const auto& [name, count] : operations) sum.calls += count.calls, sum.bytes += count.bytes;
    return sum;
  }
};

/// Returns the traffic of this group alone. Throws UsageError if its backend is not fake.
TRIREME_API FakeTraffic fake_traffic(const Group& group);
/// Returns the traffic of this group's whole world, by group name: the world and every group made
/// from it.
TRIREME_API std::map<std::string, FakeTraffic> fake_traffic_by_group(const Group& group);

}  // namespace trireme
