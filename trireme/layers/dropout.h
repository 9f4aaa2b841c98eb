// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <ostream>
#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// Dropout whose mask is a pure function of (seed, module name, call, step, global sample,
/// element): the same on every world size, and again when recomputed (tensor/random/random.h). In
/// training mode inside a RandomScope, it draws from the scope; outside any scope it is
/// at::dropout, so that the module can be used without the rest of Trireme. In eval mode it is the
/// identity. A scope needs the module's name: call name_dropouts(model) once, when the model is
/// complete.
class TRIREME_API DropoutImpl : public torch::nn::Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(double p = 0.5);  // throws UsageError outside [0, 1]
  /// Throws UsageError inside a scope if the module has no name, or if x.size(0) is not the scope's
  /// number of samples.
  at::Tensor forward(const at::Tensor& x);
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  double p() const { return p_; }
  const std::string& full_name() const { return full_name_; }
  void set_full_name(std::string name) { full_name_ = std::move(name); }

 private:
  double p_;
  std::string full_name_;
};

TORCH_MODULE(Dropout);

/// Names every trireme::Dropout below `root` by its dotted path ("blocks.0.drop").
TRIREME_API void name_dropouts(torch::nn::Module& root);

}  // namespace trireme
