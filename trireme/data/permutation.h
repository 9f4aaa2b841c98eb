// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "trireme/base/philox.h"

namespace trireme {

/// A shuffle of 0 … size-1 that is a pure function of (size, key) and takes no memory: a Feistel
/// network over the next power of two, walked until it lands inside (at most 2 steps on average).
/// Must not be called for size 0.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)) {
    // At least 4 bits: a network over a tinier domain reaches too few of its permutations.
    bits_ = std::bit_width(size_ > 1 ? size_ - 1 : uint64_t{1});
    if (bits_ < 4) bits_ = 4;
    for (int i = 0; i < kRounds; ++i) keys_[i] = stable_hash({key, static_cast<uint64_t>(i)});
  }

  int64_t size() const { return static_cast<int64_t>(size_); }

  int64_t operator()(int64_t i) const {
    auto x = static_cast<uint64_t>(i);
    do x = mix(x);
    while (x >= size_);
    return static_cast<int64_t>(x);
  }

 private:
  static constexpr int kRounds = 8;

  uint64_t mix(uint64_t x) const {
    // The halves swap widths each round, so an odd number of bits needs no padding.
    int low = bits_ / 2, high = bits_ - low;
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t right = x & ((uint64_t{1} << low) - 1), left = x >> low;
      const uint64_t mixed = (left ^ mix64(right ^ keys_[i])) & ((uint64_t{1} << high) - 1);
      x = right << high | mixed;
      const int was_low = low;
      low = high;
      high = was_low;
    }
    return x;
  }

  uint64_t size_;
  int bits_;
  uint64_t keys_[kRounds];
};

}  // namespace trireme
