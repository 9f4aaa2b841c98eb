// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Tags determine which messages match; c10d's are 31 bits. Messages of different sizes must never
// match (Gloo would end the process), so what both ends must agree on is part of the tag. Pure
// functions.
//   0 tttttttttttttttt bbbbbbbbbbbbbb  a message of tag t, b of its size
//   1 ssssssssss ddddd…                one of collective s, d of all that ranks must agree on
namespace trireme::detail {

constexpr int kFirstTag = -16;  // negative tags are Group's own
constexpr int kLastTag = (1 << 16) - 1 + kFirstTag;

constexpr uint64_t mixed(uint64_t x) {  // SplitMix64's finisher
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// kFirstTag < tag <= kLastTag.
constexpr int message_tag(int tag, size_t bytes) {
  const auto t = static_cast<uint32_t>(tag - kFirstTag);
  return static_cast<int>((t << 14) | (mixed(bytes + 1) & ((1u << 14) - 1)));
}

/// `step` distinguishes messages of one call between two ranks that could have the same size.
constexpr int collective_tag(uint64_t seq, uint64_t digest, int step, size_t bytes) {
  const uint64_t all = mixed(digest ^ mixed(bytes * 8 + static_cast<uint64_t>(step) + 1));
  return static_cast<int>((1u << 30) | ((seq & 1023) << 20) | (all & ((1u << 20) - 1)));
}

/// A tag that no message has.
constexpr int kNobodysTag = 0;
static_assert(message_tag(kFirstTag + 1, 0) >= (1 << 14) && message_tag(kLastTag, 0) < (1 << 30));

}  // namespace trireme::detail
