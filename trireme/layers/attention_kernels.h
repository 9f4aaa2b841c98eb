// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Attention on the CPU: products of tiles, and the passes of attention_exp_kernels.h between them.
namespace trireme::detail {

/// Queries at the places queries_at … of a row, and keys at keys_at …. The query at place p sees
/// the keys at the places 0 … p that are among them.
struct AttentionBlock {
  int64_t batch, queries, keys, heads, kv_heads, width;
  int64_t queries_at = 0, keys_at = 0;
  /// For each query the first place that it sees, rows `starts_row` apart; null: 0.
  const int64_t* starts = nullptr;
  int64_t starts_row = 0;
};

/// [batch, places, heads, width]: the heads of a place lie side by side, places are `row` elements
/// apart, and rows of the batch `batch`. T: float or double, or const.
template <class T>
struct HeadRows {
  T* data;
  int64_t batch, row;
};
/// [batch, heads, queries], heads `head` elements apart.
template <class T>
struct LogSums {
  T* data;
  int64_t head;
};

/// What the queries see of these keys; without `first`, put together with what out and logs hold of
/// other keys. out: 0, and logs: -∞, where a query sees nothing at all.
template <class T>
void attention_forward(const AttentionBlock& s, HeadRows<const T> q, HeadRows<const T> k,
                       HeadRows<const T> v, HeadRows<T> out, LogSums<T> logs, bool first);

/// Writes every element of dq, and of dk and dv, or adds to them. out and logs are those over all
/// keys, of this block and others.
template <class T>
struct AttentionGradients {
  HeadRows<T> dq, dk, dv;
  bool adds_dq = false, adds_dkv = false;
};
template <class T>
void attention_backward(const AttentionBlock& s, HeadRows<const T> q, HeadRows<const T> k,
                        HeadRows<const T> v, HeadRows<const T> out, HeadRows<const T> dout,
                        LogSums<const T> logs, const AttentionGradients<T>& d);

}  // namespace trireme::detail
