// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The inner loops of random.cc: Philox in SIMD, the same numbers on every target.
namespace trireme::detail {

/// Words of blocks first, first+1, … (stream 0) in order: out[4*i + w]. 16 blocks a call: 64 words.
constexpr int kBlocksPerCall = 16;
constexpr int kWordsPerCall = 4 * kBlocksPerCall;
void philox_words(uint64_t key, uint64_t first_block, uint32_t* out);

/// y[i] = number(i) < threshold ? 0 : x[i] * scale. number(i) has 16 bits: of the 128 numbers of
/// the 16 blocks that serve elements 128g … 128g+127, the first 64 are words 0 and 1 of each block
/// in turn, the rest words 2 and 3, low half before high. x == y is allowed. x[0] is element
/// `first` of its row, a multiple of kDropoutGroup.
constexpr int64_t kDropoutGroup = 8 * kBlocksPerCall;
void dropout_row(const float* x, float* y, int64_t n, uint64_t key, uint32_t threshold, float scale,
                 int64_t first = 0);

}  // namespace trireme::detail
