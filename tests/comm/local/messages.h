// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/support/refusals.h"

// Messages for tests of point to point.
namespace trireme::testing {

using Bytes = std::vector<unsigned char>;

inline void expect_clean(const Outcomes& outcomes) {
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r], "") << "rank " << r;
}

inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

inline local::Call send_of(int to, int tag, const void* p, size_t n,
                           CallSite at = CallSite::here()) {
  return {.op = Collective::send,
          .dtype = local::DType::u8,
          .root = to,
          .tag = tag,
          .in = p,
          .count = n,
          .site = at};
}
inline local::Call recv_of(int from, int tag, void* p, size_t n, CallSite at = CallSite::here()) {
  return {.op = Collective::recv,
          .dtype = local::DType::u8,
          .root = from,
          .tag = tag,
          .out = p,
          .count = n,
          .site = at};
}

inline Bytes pattern(size_t n, uint64_t seed) {
  Bytes b(n);
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (auto& c : b)
    c = static_cast<unsigned char>((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
  return b;
}

// Peers cannot read this process's memory, as where the system refuses process_vm_readv.
inline void refuse_peeks(local::Engine& e) { e.host().control(e.rank())->probe_address = 8; }

}  // namespace trireme::testing
