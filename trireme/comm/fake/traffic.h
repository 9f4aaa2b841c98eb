// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/comm/group.h"

// What a fake world was asked to move: for sizing a layout without the ranks.
namespace trireme {

struct FakeTraffic {
  struct Count {
    uint64_t calls = 0;
    uint64_t bytes = 0;
  };
  /// By operation: "all_reduce", "send", …. Bytes are those of nccl-tests' size column: the tensor
  /// of all_reduce, broadcast, reduce, send and recv; all ranks' parts together of all_gather,
  /// reduce_scatter, gather and scatter; what this rank gives to all_to_all; none for barrier.
  std::map<std::string, Count> operations;

  Count total() const {
    Count sum;
    for (const auto& [name, count] : operations) sum.calls += count.calls, sum.bytes += count.bytes;
    return sum;
  }
};

/// Of this group alone. UsageError where its backend is not fake.
TRIREME_API FakeTraffic fake_traffic(const Group& group);
/// Of this group's whole world, by name of the group: it and all that were made from it.
TRIREME_API std::map<std::string, FakeTraffic> fake_traffic_by_group(const Group& group);

}  // namespace trireme
