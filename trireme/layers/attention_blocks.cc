// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention_blocks.h"

#include <type_traits>

#include "trireme/base/check.h"
#include "trireme/layers/attention_aten.h"
#include "trireme/layers/attention_kernels.h"
#include "trireme/tensor/host_data.h"

namespace trireme::detail {
namespace {

// The kernels take the heads of a place side by side.
bool are_dense(const at::Tensor& t) {
  return (t.size(3) == 1 || t.stride(3) == 1) && (t.size(2) == 1 || t.stride(2) == t.size(3));
}
at::Tensor dense_heads(const at::Tensor& t) { return are_dense(t) ? t : t.contiguous(); }
void check_dense(const at::Tensor& t) {
  check<UsageError>(are_dense(t), "attention: the heads of a result do not lie side by side");
}

template <class T>
HeadRows<T> heads_of(const at::Tensor& t) {
  return {host_data<std::remove_const_t<T>>(t), t.stride(0), t.stride(1)};
}

struct OnHost {
  OnHost(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask)
      : starts(mask.starts), block{q.size(0), q.size(1), k.size(1),       q.size(2),
                                   k.size(2), q.size(3), mask.queries_at, mask.keys_at} {
    if (!starts.defined()) return;
    if (starts.stride(1) != 1) starts = starts.contiguous();
    block.starts = host_data<int64_t>(starts);
    block.starts_row = starts.stride(0);
  }
  at::Tensor starts;
  AttentionBlock block;
};

bool ours(const at::Tensor& q) {
  return q.device().is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kDouble);
}

template <class T>
void forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
             const AttentionMask& mask, const at::Tensor& out, const at::Tensor& logs, bool first) {
  const OnHost on(q, k, mask);
  attention_forward<T>(on.block, heads_of<const T>(q), heads_of<const T>(k), heads_of<const T>(v),
                       heads_of<T>(out), {host_data<T>(logs), logs.stride(1)}, first);
}

template <class T>
void backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              const AttentionMask& mask, const at::Tensor& out, const at::Tensor& dout,
              const at::Tensor& logs, const BlockGradients& d) {
  const OnHost on(q, k, mask);
  attention_backward<T>(
      on.block, heads_of<const T>(q), heads_of<const T>(k), heads_of<const T>(v),
      heads_of<const T>(out), heads_of<const T>(dout), {host_data<T>(logs), logs.stride(1)},
      {heads_of<T>(d.dq), heads_of<T>(d.dk), heads_of<T>(d.dv), d.adds_dq, d.adds_dkv});
}

}  // namespace

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

void check_places(int64_t batch, int64_t queries, at::Device device, const AttentionMask& mask,
                  const char* what) {
  check<UsageError>(mask.queries_at >= 0 && mask.keys_at >= 0,
                    "{}: queries at place {} and keys at place {}: places count from 0", what,
                    mask.queries_at, mask.keys_at);
  const at::Tensor& starts = mask.starts;
  if (!starts.defined()) return;
  check<UsageError>(starts.dim() == 2 && starts.size(0) == batch && starts.size(1) == queries &&
                        starts.scalar_type() == at::kLong && starts.device() == device,
                    "{}: where documents start must be [{}, {}] in int64, on the device of the "
                    "queries",
                    what, batch, queries);
  if (!starts.device().is_cpu()) return;
  const at::Tensor dense = starts.contiguous();
  const int64_t* p = host_data<int64_t>(dense);
  for (int64_t i = 0; i < dense.numel(); ++i)
    check<UsageError>(p[i] >= 0 && p[i] <= mask.queries_at + i % queries,
                      "{}: the document of place {} of row {} starts at {}, which is not in 0 … {}",
                      what, mask.queries_at + i % queries, i / queries, p[i],
                      mask.queries_at + i % queries);
}

void attend_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionMask& mask, const at::Tensor& out, const at::Tensor& log_sums,
                  bool first) {
  if (!ours(q)) return attention_aten(q, k, v, mask, out, log_sums, first);
  check_dense(out);
  const auto run = q.scalar_type() == at::kFloat ? forward<float> : forward<double>;
  run(dense_heads(q), dense_heads(k), dense_heads(v), mask, out, log_sums, first);
}

void attend_block_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionMask& mask, const at::Tensor& out, const at::Tensor& dout,
                           const at::Tensor& log_sums, const BlockGradients& gradients) {
  if (!ours(q)) return attention_backward_aten(q, k, v, mask, out, dout, log_sums, gradients);
  for (const at::Tensor& t : {gradients.dq, gradients.dk, gradients.dv}) check_dense(t);
  const auto run = q.scalar_type() == at::kFloat ? backward<float> : backward<double>;
  run(dense_heads(q), dense_heads(k), dense_heads(v), mask, dense_heads(out), dense_heads(dout),
      log_sums, gradients);
}

}  // namespace trireme::detail
