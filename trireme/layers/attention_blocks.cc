// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention_blocks.h"

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme::detail {

at::ScalarType computed_type(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

at::Tensor computed(const at::Tensor& t) { return t.to(computed_type(t.scalar_type())); }

void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const char* what) {
  const auto describe = [](const at::Tensor& t) {
    return t.defined() ? fmt::format("{} on {} in {}", c10::str(t.sizes()), t.device().str(),
                                     c10::toString(t.scalar_type()))
                       : std::string("undefined");
  };
  const bool shaped = q.defined() && k.defined() && v.defined() && q.dim() == 4 && k.dim() == 4 &&
                      v.sizes() == k.sizes() && k.size(0) == q.size(0) && k.size(3) == q.size(3) &&
                      k.size(2) > 0 && q.size(2) % k.size(2) == 0;
  check<UsageError>(shaped && k.scalar_type() == q.scalar_type() && k.device() == q.device() &&
                        v.scalar_type() == q.scalar_type() && v.device() == q.device() &&
                        at::isFloatingType(q.scalar_type()),
                    "{}: queries must be [batch, queries, heads, d], and keys and values [batch, "
                    "keys, kv_heads, d] of the same dtype on the same device, with heads a "
                    "multiple of kv_heads; they are {}, {} and {}",
                    what, describe(q), describe(k), describe(v));
}

void check_places(const at::Tensor& q, const AttentionMask& mask, const char* what) {
  check<UsageError>(mask.queries_at >= 0 && mask.keys_at >= 0,
                    "{}: queries at place {} and keys at place {}: places count from 0", what,
                    mask.queries_at, mask.keys_at);
  const at::Tensor& starts = mask.starts;
  if (!starts.defined()) return;
  check<UsageError>(starts.dim() == 2 && starts.size(0) == q.size(0) &&
                        starts.size(1) == q.size(1) && starts.scalar_type() == at::kLong &&
                        starts.device() == q.device(),
                    "{}: where documents start must be [{}, {}] in int64, on the device of the "
                    "queries",
                    what, q.size(0), q.size(1));
  if (!starts.device().is_cpu()) return;
  const at::Tensor dense = starts.contiguous();
  const int64_t* p = host_data<int64_t>(dense);
  for (int64_t i = 0; i < dense.numel(); ++i)
    check<UsageError>(p[i] >= 0 && p[i] <= mask.queries_at + i % q.size(1),
                      "{}: the document of place {} of row {} starts at {}, which is not in 0 … {}",
                      what, mask.queries_at + i % q.size(1), i / q.size(1), p[i],
                      mask.queries_at + i % q.size(1));
}

void attend_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionMask& mask, const at::Tensor& out, const at::Tensor& log_sums,
                  bool first) {
  attend_block_aten(q, k, v, mask, out, log_sums, first);
}

void attend_block_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionMask& mask, const at::Tensor& out, const at::Tensor& dout,
                           const at::Tensor& log_sums, const BlockGradients& gradients) {
  attend_block_backward_aten(q, k, v, mask, out, dout, log_sums, gradients);
}

}  // namespace trireme::detail
