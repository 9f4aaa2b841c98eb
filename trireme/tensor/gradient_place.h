// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "trireme/base/export.h"
#include "trireme/tensor/torch_compat.h"

// Who keeps gradients (a bucket) offers a parameter's place; who computes one (a layer's backward)
// takes it, writes there and returns it as the gradient. Autograd then makes it p.grad() without a
// copy. Taking a place is never needed: a gradient from elsewhere is copied there. Used by the
// thread that runs backward.
namespace trireme {

struct GradientPlace {
  at::Tensor memory;  // contiguous, p's shape and dtype, anything in it; undefined: none
  /// Whoever has written the gradient may say here whether all of it is finite.
  std::optional<bool>* finite = nullptr;
};

/// While it lives, p's place can be taken. `offer` answers for the moment in which it is asked, and
/// may always answer with none.
class TRIREME_API GradientPlaceOffer {
 public:
  GradientPlaceOffer(const at::Tensor& p, std::function<GradientPlace()> offer);
  GradientPlaceOffer(GradientPlaceOffer&&) noexcept = default;
  GradientPlaceOffer& operator=(GradientPlaceOffer&&) = delete;
  ~GradientPlaceOffer();

 private:
  compat::NodePtr node_;
  uintptr_t key_ = 0;
};

/// Somebody offers a place for p's gradient, now and then.
TRIREME_API bool has_gradient_place(const at::Tensor& p);
/// Inside a backward, once the gradient is about to be written. None, too, where it will not be
/// accumulated into an empty p.grad(): autograd::grad(), create_graph, a second contribution.
TRIREME_API GradientPlace take_gradient_place(const at::Tensor& p);

}  // namespace trireme
