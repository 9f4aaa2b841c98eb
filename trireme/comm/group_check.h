// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "trireme/base/check.h"
#include "trireme/comm/backend.h"

// How Group checks and prepares tensors for backends.
namespace trireme::detail {

[[noreturn]] void refuse_tensor(const Backend& b, const at::Tensor& t, const char* what);
[[noreturn]] void refuse_reduction(const Backend& b, Reduction op, const at::Tensor& t,
                                   const char* what);
[[noreturn]] void refuse_root(const Backend& b, int root, const char* what);

/// Throws UsageError unless the backend accepts this tensor for `op`.
inline void check_tensor(const Backend& b, Collective op, const at::Tensor& t, const char* what) {
  if (!t.defined() || t.layout() != at::kStrided ||
      !b.supports(op, t.scalar_type(), t.device().type())) [[unlikely]]
    refuse_tensor(b, t, what);
}
inline void check_reduction(const Backend& b, Reduction r, const at::Tensor& t, const char* what) {
  if (!b.supports(r.op, t.scalar_type()) ||
      (r.factor != 1 && !t.is_floating_point() && !t.is_complex())) [[unlikely]]
    refuse_reduction(b, r, t, what);
}
inline void check_root(const Backend& b, int root, const char* what) {
  if (root < 0 || root >= b.size()) [[unlikely]]
    refuse_root(b, root, what);
}
void check_list(const Backend& b, const std::vector<at::Tensor>& list, const char* what,
                const char* name);

/// Holds `t` itself if it is contiguous, else a copy. `t` must outlive it.
class Dense {
  const at::Tensor copy_;

 public:
  const bool copied;
  const at::Tensor& tensor;
  explicit Dense(const at::Tensor& t)
      : copy_(t.is_contiguous() ? at::Tensor() : t.contiguous()),
        copied(copy_.defined()),
        tensor(copied ? copy_ : t) {}
  explicit Dense(at::Tensor&&) = delete;
  Dense(const Dense&) = delete;
};

/// A few int64 zeros where the backend can reach them: on the CPU if it can.
at::Tensor small_tensor(const Backend& b, int64_t count);

/// When the call is complete, copies `from` back to where it was copied from.
inline void copy_back(Backend& b, Token token, const at::Tensor& to, const at::Tensor& from) {
  b.when_complete(token, [to = to, from = from] {
    at::NoGradGuard no_grad;
    to.copy_(from);
  });
}

/// Returns the flattened tensors, concatenated.
at::Tensor flatten(const std::vector<at::Tensor>& tensors, int64_t extra = 0);
/// The reverse of flatten(); tensor i has the shape of to[i].
void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& to);

}  // namespace trireme::detail
