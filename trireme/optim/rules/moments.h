// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "trireme/optim/optimizer.h"

namespace trireme {

/// Inside optim: the state of those that keep Adam's two moments.
class MomentOptimizer : public Optimizer {
 public:
  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    visit_steps(visitor, taken_);
    visit(visitor, "exp_avg", exp_avg_);
    visit(visitor, "exp_avg_sq", exp_avg_sq_);
  }

 protected:
  MomentOptimizer(NamedTensors parameters, const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups),
        exp_avg_(zeros()),
        exp_avg_sq_(zeros()),
        taken_(table_.size(), 0) {}

  at::Tensor exp_avg_, exp_avg_sq_;
  std::vector<int64_t> taken_;  // steps of each parameter: one without a gradient does not age
};

}  // namespace trireme
