// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// Shows the state of a rank that holds parts of parameters as parts of the whole ones: what is
/// visited under a name that ends in a parameter's ("model.head.weight",
/// "optim.exp_avg.head.weight") and has that parameter's sizes here, or is a flat range of it
/// (ZeRO), goes on as the boxes of its layout. A save leaves out boxes that are counted elsewhere:
/// ZeRO may own other ranges there, which would overlap. Everything else goes on as it is. A
/// checkpoint written so loads under any other layout.
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
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override;

 private:
  const ParameterLayout* layout_for(const std::string& name) const;
  const ParameterLayouts& layouts_;
  const std::optional<bool> first_replica_;
};

}  // namespace trireme
