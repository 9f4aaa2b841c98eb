// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "trireme/base/philox.h"

namespace trireme::pretend {

/// How late work is.
struct Delay {
  std::chrono::microseconds at_most{0};
  bool until_waited_for = false;  // else exactly so long

  bool operator==(const Delay&) const = default;
};

/// The n-th piece of work of a stream: half of it is as late as it can be, until somebody waits for
/// it, so that who forgot to wait does without it; a quarter comes a little late. Who only asks
/// whether it is done need not ask for ever.
constexpr Delay delay_of(uint64_t seed, int device, int64_t stream, uint64_t n) {
  if (seed == 0) return {};
  const uint64_t who = (static_cast<uint64_t>(device) << 32) + static_cast<uint64_t>(stream);
  const PhiloxBlock drawn = philox_block(seed, who, n);
  if (drawn[0] % 4 < 2) return {std::chrono::milliseconds(10), true};
  if (drawn[0] % 4 == 2) return {std::chrono::microseconds(drawn[1] % 200), false};
  return {};
}

}  // namespace trireme::pretend
