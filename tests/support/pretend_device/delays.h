// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "trireme/base/philox.h"

namespace trireme::pretend {

/// How late the n-th piece of work of a stream is: half of the time not at all, else up to a fifth
/// of a millisecond or, as often, up to two.
constexpr std::chrono::microseconds delay_of(uint64_t seed, int device, int64_t stream,
                                             uint64_t n) {
  if (seed == 0) return std::chrono::microseconds(0);
  const uint64_t who = (static_cast<uint64_t>(device) << 32) + static_cast<uint64_t>(stream);
  const PhiloxBlock drawn = philox_block(seed, who, n);
  const uint32_t longest = drawn[0] % 4 < 2 ? 0 : drawn[0] % 4 == 2 ? 200 : 2000;
  return std::chrono::microseconds(longest == 0 ? 0 : drawn[1] % longest);
}

}  // namespace trireme::pretend
