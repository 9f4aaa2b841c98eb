// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// Sizes, repetitions and figures of the bench. Pure.
namespace trireme {

/// begin, begin × factor, … up to end (bytes).
inline std::vector<int64_t> bench_sizes(int64_t begin, int64_t end, int64_t factor) {
  std::vector<int64_t> sizes;
  for (int64_t s = begin; s <= end; s *= factor) {
    sizes.push_back(s);
    if (factor < 2) break;
  }
  return sizes;
}

/// Timed calls of one round: enough that a round is not noise, few enough that rewriting large
/// buffers between them stays short.
inline int calls_a_round(int64_t bytes) {
  return static_cast<int>(
      std::clamp<int64_t>((int64_t{64} << 20) / std::max<int64_t>(bytes, 1), 2, 200));
}

/// The factor between the rate of the algorithm and of the bus, as nccl-tests has it for
/// all_reduce.
inline double all_reduce_bus_factor(int ranks) {
  return ranks == 1 ? 1.0 : 2.0 * (ranks - 1) / ranks;
}

inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

}  // namespace trireme
