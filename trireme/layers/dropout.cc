// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/dropout.h"

#include <ATen/ops/dropout.h>

#include "trireme/base/check.h"
#include "trireme/tensor/random/random.h"

namespace trireme {

DropoutImpl::DropoutImpl(double p) : p_(p) {
  check<UsageError>(p >= 0 && p <= 1, "dropout: the probability is {}, outside [0, 1]", p);
}

at::Tensor DropoutImpl::forward(const at::Tensor& x) {
  if (!is_training() || p_ == 0) return x;
  if (!RandomScope::current()) return at::dropout(x, p_, true);
  check<UsageError>(
      !full_name_.empty(),
      "dropout: the module has no name: call trireme::name_dropouts(model) once, after the model "
      "is complete");
  return keyed_dropout(x, p_, full_name_);
}

void DropoutImpl::pretty_print(std::ostream& stream) const {
  stream << "trireme::Dropout(p=" << p_ << ")";
}

void name_dropouts(torch::nn::Module& root) {
  // A module on the stack has no shared_ptr of itself, which named_modules() would want for the
  // root; its children have.
  for (const auto& child : root.named_children()) {
    for (const auto& item : child.value()->named_modules(child.key()))
      if (auto* dropout = item.value()->as<DropoutImpl>()) dropout->set_full_name(item.key());
  }
}

}  // namespace trireme
