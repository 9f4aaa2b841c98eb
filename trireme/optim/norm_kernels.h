// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Sums of squares by a fixed order: 1,024-element blocks from the start of the range; inside a
// block, element i goes to partial sum i % 16 in float64 and the sixteen are added pairwise. The
// same bits on every CPU.
namespace trireme {

inline constexpr int64_t kNormBlock = 1024;
inline constexpr int64_t norm_blocks(int64_t numel) {
  return (numel + kNormBlock - 1) / kNormBlock;
}

/// out: norm_blocks(n) values.
void block_square_sums(const float* x, int64_t n, double* out);
void block_square_sums(const double* x, int64_t n, double* out);

/// The sum of n values along the tree that splits at the largest power of two below n. 0 for n = 0.
double tree_sum(const double* values, int64_t n);

}  // namespace trireme
