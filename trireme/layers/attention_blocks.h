// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/layers/attention.h"

// Attention of some queries over some keys, without autograd: what attention() is made of, and what
// ranks compute block by block that have parts of a row each. On the CPU by the kernels
// (attention_kernels.h), else by LibTorch's operators.
namespace trireme::detail {

/// A block is computed in this type: float32 for bfloat16 and float16, else its own.
at::ScalarType computed_type(at::ScalarType type);
at::Tensor computed(const at::Tensor& t);

/// Throws UsageError, which begins with `what`, unless q is [batch, queries, heads, d], k and v
/// [batch, keys, kv_heads, d] of one dtype and device, and kv_heads divides heads.
void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const char* what);
/// Throws UsageError unless places count from 0 and mask.starts, if it is defined, is [batch,
/// queries] in int64 on that device and, in the host's memory, within 0 … the query's place.
void check_places(int64_t batch, int64_t queries, at::Device device, const AttentionMask& mask,
                  const char* what);

/// Puts what the queries see of these keys together with what they saw of others. All tensors are
/// of the computed type. out: [batch, queries, heads, d], log_sums: [batch, heads, queries]; both
/// may be narrowed from longer ones. first: they hold nothing yet.
void attend_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionMask& mask, const at::Tensor& out, const at::Tensor& log_sums,
                  bool first);

/// The gradients of a block. out and log_sums: over all keys that the queries see, in this block or
/// in others. Each of dq, and dk with dv, is added to, or written if it holds nothing yet.
struct BlockGradients {
  at::Tensor dq, dk, dv;
  bool adds_dq = false, adds_dkv = false;
};
void attend_block_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionMask& mask, const at::Tensor& out, const at::Tensor& dout,
                           const at::Tensor& log_sums, const BlockGradients& gradients);

}  // namespace trireme::detail
