// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"

namespace trireme {
namespace {

class Lion final : public Optimizer {
 public:
  Lion(NamedTensors parameters, const LionOptions& options, const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups), options_(options), exp_avg_(zeros()) {}

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    for (const auto& s : all) {
      const double rate = lr * multiplier_of(s.index);
      const LionScalars scalars{grad_scale, 1 - rate * decay_of(s.index, options_.weight_decay),
                                options_.beta1, options_.beta2, rate};
      if (!s.parameter.is_cpu())
        lion_pass(s.parameter.view({s.numel}), s.gradient.view({s.numel}), s.of(exp_avg_), scalars);
      else
        run_ranges(s, [&](auto r) { lion_pass(r.p(), r.g(), r.of(exp_avg_), r.n, scalars); });
    }
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    visit(visitor, "exp_avg", exp_avg_);
  }

 private:
  LionOptions options_;
  at::Tensor exp_avg_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(NamedTensors parameters, const LionOptions& options,
                                     const std::vector<OptionGroup>& groups) {
  check_rate("Lion", "beta1", options.beta1);
  check_rate("Lion", "beta2", options.beta2);
  check_not_negative("Lion", "weight_decay", options.weight_decay);
  return std::make_unique<Lion>(std::move(parameters), options, groups);
}

}  // namespace trireme
