// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "trireme/base/check.h"
#include "trireme/comm/backend.h"

// What Group does with tensors before a backend sees them.
namespace trireme::detail {

/// UsageError unless the backend takes this tensor for `op`.
void check_tensor(const Backend& b, Collective op, const at::Tensor& t, const char* what);
void check_reduction(const Backend& b, Reduction op, const at::Tensor& t, const char* what);
void check_root(const Backend& b, int root, const char* what);
void check_list(const Backend& b, const std::vector<at::Tensor>& list, const char* what,
                const char* name);

/// `t` itself where it is contiguous, else a copy.
struct Dense {
  at::Tensor tensor;
  bool copied = false;
  explicit Dense(const at::Tensor& t)
      : tensor(t.is_contiguous() ? t : t.contiguous()), copied(!t.is_contiguous()) {}
};

/// A few zeros of int64 where the backend can reach them: CPU, else CUDA.
at::Tensor small_tensor(const Backend& b, int64_t count);

/// When the call is complete, `from` goes back to where it was copied from.
inline void copy_back(Backend& b, Token token, const at::Tensor& to, const at::Tensor& from) {
  b.when_complete(token, [to = to, from = from] {
    at::NoGradGuard no_grad;
    to.copy_(from);
  });
}

/// The tensors one after the other, each flattened.
at::Tensor flatten(const std::vector<at::Tensor>& tensors, int64_t extra = 0);
/// The other way; tensor i has the shape of to[i].
void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& to);

}  // namespace trireme::detail
