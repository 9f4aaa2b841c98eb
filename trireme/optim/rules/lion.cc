// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"
#include "trireme/optim/rules/segment_lists.h"

namespace trireme {
namespace {

class Lion final : public Optimizer {
 public:
  Lion(NamedTensors parameters, const LionOptions& options, const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups), options_(options), exp_avg_(zeros()) {}

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<LionScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      const double rate = lr * multiplier_of(parameter);
      scalars.push_back({grad_scale, 1 - rate * decay_of(parameter, options_.weight_decay),
                         options_.beta1, options_.beta2, rate});
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) { lion_pass(l.p, l.g, l.of(exp_avg_), l.of(scalars)); });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i],
                   [&](auto r) { lion_pass(r.p(), r.g(), r.of(exp_avg_), r.n, scalars[i]); });
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
