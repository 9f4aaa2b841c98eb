// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/non_finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include "trireme/tensor/numbers_of.h"

namespace trireme {

void FirstNonFinite::look(size_t parameter, std::optional<bool> finite,
                          const at::Tensor& gradient) {
  if (first_ != 0) return;
  if (!finite && !is_asynchronous(gradient.device())) finite = all_finite(gradient);
  if (finite) {
    if (!*finite) found(parameter);
    return;
  }
  const at::NoGradGuard no_grad;
  asked_.push_back(parameter);
  answers_.push_back(at::isfinite(gradient).all());
}

double FirstNonFinite::first() {
  if (asked_.empty()) return first_;
  const at::NoGradGuard no_grad;
  const std::vector<bool> finite = numbers_of<bool>(at::stack(answers_));
  for (size_t i = 0; i < asked_.size(); ++i)
    if (!finite[i]) found(asked_[i]);
  asked_.clear();
  answers_.clear();
  return first_;
}

}  // namespace trireme
