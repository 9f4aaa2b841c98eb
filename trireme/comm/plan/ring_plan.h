// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/plan/plan.h"

namespace trireme::plan {

/// Ring all-reduce: n − 1 rounds in which each chunk travels around and collects its sum, and n − 1
/// in which the sums travel around. A rank communicates only with its two neighbours and sends
/// 2(n−1)/n · count, the minimum. Each chunk is added in its own order, starting at a different
/// rank: the bits are equal on all ranks, but not those of the group's order. (Patarasu & Yuan,
/// 2009)
inline Plan ring_plan(int rank, int n, size_t count) {
  Builder b;
  const int right = (rank + 1) % n, left = (rank + n - 1) % n;
  auto chunk = [&](int i) {
    return part_of({0, count}, static_cast<size_t>(n), static_cast<size_t>((i % n + n) % n));
  };
  for (int s = 0; s + 1 < n; ++s) {
    b.send(s, right, {false, chunk(rank - s)});
    b.recv_reduce(s, left, chunk(rank - s - 1), 0, true);
  }
  for (int s = 0; s + 1 < n; ++s) {
    b.send(n - 1 + s, right, {false, chunk(rank - s + 1)});
    b.recv(n - 1 + s, left, {false, chunk(rank - s)});
  }
  return b.take(2 * (n - 1));
}

}  // namespace trireme::plan
