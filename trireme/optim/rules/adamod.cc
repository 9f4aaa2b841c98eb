// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/moments.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"
#include "trireme/optim/rules/segment_lists.h"

namespace trireme {
namespace {

class AdaMod final : public MomentOptimizer {
 public:
  AdaMod(NamedTensors parameters, const AdaModOptions& options,
         const std::vector<OptionGroup>& groups)
      : MomentOptimizer(std::move(parameters), groups), options_(options), exp_avg_lr_(zeros()) {}

  void state(StateVisitor& visitor) override {
    MomentOptimizer::state(visitor);
    visit(visitor, "exp_avg_lr", exp_avg_lr_);
  }

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<AdaModScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      scalars.push_back(scalars_of(parameter, ++taken_[parameter], lr, grad_scale));
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) {
        adamod_pass(l.p, l.g, l.of(exp_avg_), l.of(exp_avg_sq_), l.of(exp_avg_lr_), l.of(scalars));
      });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i], [&](auto r) {
          adamod_pass(r.p(), r.g(), r.of(exp_avg_), r.of(exp_avg_sq_), r.of(exp_avg_lr_), r.n,
                      scalars[i]);
        });
  }

 private:
  AdaModScalars scalars_of(size_t parameter, int64_t t, double lr, double grad_scale) const {
    lr *= multiplier_of(parameter);
    const double taken = static_cast<double>(t);
    AdaModScalars s;
    s.grad_scale = grad_scale;
    s.keep = 1 - lr * decay_of(parameter, options_.weight_decay);
    s.beta1 = options_.beta1, s.beta2 = options_.beta2, s.beta3 = options_.beta3;
    s.eps = options_.eps;
    s.step_size =
        lr * std::sqrt(1 - std::pow(options_.beta2, taken)) / (1 - std::pow(options_.beta1, taken));
    return s;
  }

  AdaModOptions options_;
  at::Tensor exp_avg_lr_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamod(NamedTensors parameters, const AdaModOptions& options,
                                       const std::vector<OptionGroup>& groups) {
  check_rate("AdaMod", "beta1", options.beta1);
  check_rate("AdaMod", "beta2", options.beta2);
  check_rate("AdaMod", "beta3", options.beta3);
  check_not_negative("AdaMod", "eps", options.eps);
  check_not_negative("AdaMod", "weight_decay", options.weight_decay);
  return std::make_unique<AdaMod>(std::move(parameters), options, groups);
}

}  // namespace trireme
