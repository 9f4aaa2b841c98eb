// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/moments.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"
#include "trireme/optim/rules/segment_lists.h"

namespace trireme {
namespace {

class AdamW final : public MomentOptimizer {
 public:
  AdamW(NamedTensors parameters, const AdamWOptions& options,
        const std::vector<OptionGroup>& groups)
      : MomentOptimizer(std::move(parameters), groups), options_(options) {
    if (options_.amsgrad) max_exp_avg_sq_ = zeros();
  }

  void state(StateVisitor& visitor) override {
    MomentOptimizer::state(visitor);
    if (max_exp_avg_sq_.defined()) visit(visitor, "max_exp_avg_sq", max_exp_avg_sq_);
  }

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<AdamWScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      scalars.push_back(scalars_of(parameter, ++taken_[parameter], lr, grad_scale));
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) {
        adamw_pass(l.p, l.g, l.of(exp_avg_), l.of(exp_avg_sq_), l.of(max_exp_avg_sq_),
                   l.of(scalars));
      });
    else
      for (size_t i = 0; i < all.size(); ++i)
        options_.amsgrad ? amsgrad(all[i], scalars[i]) : plain(all[i], scalars[i]);
  }

 private:
  void plain(const Segment& s, const AdamWScalars& scalars) {
    run_ranges(s, [&](auto r) {
      adamw_pass(r.p(), r.g(), r.of(exp_avg_), r.of(exp_avg_sq_), r.n, scalars);
    });
  }
  void amsgrad(const Segment& s, const AdamWScalars& scalars) {
    run_ranges(s, [&](auto r) {
      amsgrad_pass(r.p(), r.g(), r.of(exp_avg_), r.of(exp_avg_sq_), r.of(max_exp_avg_sq_), r.n,
                   scalars);
    });
  }
  bool frozen(int64_t t) const { return options_.freeze_step > 0 && t > options_.freeze_step; }
  AdamWScalars scalars_of(size_t parameter, int64_t t, double lr, double grad_scale) const {
    AdamWScalars s;
    lr *= multiplier_of(parameter);
    const double decay = decay_of(parameter, options_.weight_decay);
    s.grad_scale = grad_scale;
    s.l2 = options_.decoupled ? 0 : decay;
    s.keep = options_.decoupled ? 1 - lr * decay : 1;
    s.beta1 = options_.beta1;
    s.beta2 = options_.beta2;
    s.eps = options_.eps;
    s.step_size = lr;
    if (options_.bias_correction) {
      s.step_size = lr / (1 - std::pow(options_.beta1, static_cast<double>(t)));
      const int64_t moved = frozen(t) ? options_.freeze_step : t;
      s.root_scale = 1 / std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(moved)));
    }
    if (frozen(t)) s.beta2 = 1;
    return s;
  }

  AdamWOptions options_;
  at::Tensor max_exp_avg_sq_;  // amsgrad's
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const AdamWOptions& options,
                                      const std::vector<OptionGroup>& groups) {
  check<UsageError>(
      options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
      "AdamW: betas are ({}, {}): both must be in [0, 1)", options.beta1, options.beta2);
  check<UsageError>(options.freeze_step >= 0, "AdamW: freeze_step is {}: choose 0 (never) or more",
                    options.freeze_step);
  check<UsageError>(options.eps >= 0 && options.weight_decay >= 0,
                    "AdamW: eps ({}) and weight_decay ({}) must not be negative", options.eps,
                    options.weight_decay);
  return std::make_unique<AdamW>(std::move(parameters), options, groups);
}

}  // namespace trireme
