// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The inner loops of causal attention on the CPU, in SIMD (float) or plain (double, which tests
// use).
namespace trireme::detail {

/// The queries of all heads, then keys, then values: a row of qkv.
struct AttentionShape {
  int64_t batch, time, heads, width;
  /// For each place the first one that it sees, [batch, time]; null: 0.
  const int64_t* starts = nullptr;
  /// Elements from one position to the next in qkv, in the output, and in a tile of scores, whose
  /// rows end on whole vectors, wherever they begin.
  int64_t row() const { return 3 * heads * width; }
  int64_t out_row() const { return heads * width; }
  int64_t ld() const { return (time + kPad - 1) / kPad * kPad + (starts ? kPad : 0); }

 private:
  static constexpr int64_t kPad = 64;
};

/// T: float or double. qkv: [batch, time, 3 · heads · width]; out: [batch, time, heads · width];
/// logs: [batch, heads, time], of which backward needs no more than that of each row's scores.
template <class T>
void causal_attention_forward(const AttentionShape& s, const T* qkv, T* out, T* logs);
/// Writes every element of dqkv.
template <class T>
void causal_attention_backward(const AttentionShape& s, const T* qkv, const T* out, const T* dout,
                               const T* logs, T* dqkv);

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
