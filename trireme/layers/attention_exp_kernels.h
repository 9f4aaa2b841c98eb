// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The passes over tiles of attention's scores, in SIMD (float) or plain (double, which tests use).
namespace trireme::detail {

/// Rows of scores to probabilities that are not yet divided by their sum: row i of `s` (rows `ld`
/// apart) has first_visible + i visible columns; s = exp(s - max) there and 0 up to column
/// `columns`. sums[i]: of the row; logs[i]: max + log(sum).
template <class T>
void causal_exp(T* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible, T* sums,
                T* logs);

/// s = exp(s - logs[i]) where visible, else 0; dp = s · (dp - delta[i]).
template <class T>
void causal_exp_backward(T* s, T* dp, int64_t rows, int64_t columns, int64_t ld,
                         int64_t first_visible, const T* logs, const T* delta);

}  // namespace trireme::detail
