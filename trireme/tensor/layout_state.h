// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// Shows the state of a rank that holds parts of parameters as parts of the whole ones: what is
/// visited under a name that ends in a parameter's ("model.head.weight",
/// "optim.exp_avg.head.weight") and has that parameter's sizes here, or is a flat range of it
/// (ZeRO), goes on as the boxes of its layout. A save leaves out boxes that are counted elsewhere:
/// ZeRO may own other ranges there, which would overlap. So it does with all state of a copy
/// (ParameterLayout::copy_of), which a load reads under the parameter's name (LoadOptions::tied).
/// Everything else goes on as it is. A checkpoint written so loads under any other layout.
///
/// What replicas may hold differently (buffers) is of a stage's own on a pipeline: not rank 0's
/// copy is saved but that of the first replica of each stage, which `first_replica` says of this
/// rank. nullopt: the model is not divided, and rank 0 has everything.
///
/// `layouts` is by the parameters' names and outlives the visitor. Throws UsageError for a tensor
/// under a divided parameter's name that has other sizes: nothing says where its elements belong.
class TRIREME_API LayoutVisitor final : public ForwardingVisitor {
 public:
  LayoutVisitor(StateVisitor& inner, const ParameterLayouts& layouts,
                std::optional<bool> first_replica = std::nullopt)
      : ForwardingVisitor(inner), layouts_(layouts), first_replica_(first_replica) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override;
  void value(const std::string& name, int64_t& v) override { show(name, v); }
  void value(const std::string& name, double& v) override { show(name, v); }
  void value(const std::string& name, std::string& v) override { show(name, v); }
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override;

 private:
  template <class T>
  void show(const std::string& name, T& v) {
    const ParameterLayout* layout = saving() ? layout_for(name) : nullptr;
    if (!layout || layout->copy_of.empty()) inner_.value(name, v);
  }
  const ParameterLayout* layout_for(const std::string& name) const;
  const ParameterLayouts& layouts_;
  const std::optional<bool> first_replica_;
};

/// `walk` through such a visitor, with the layouts of `module`, which outlives it: for state of
/// divided layers that was made from their tensors, such as that of make_adamw(): with_layouts(
/// state_of(*adamw), net). state_of() of a module, of a torch::optim optimizer and of a
/// ShardedOptimizer do so by themselves.
TRIREME_API StateWalk with_layouts(StateWalk walk, const torch::nn::Module& module);

}  // namespace trireme
