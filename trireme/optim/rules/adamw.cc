// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/adamw_scalars.h"
#include "trireme/optim/rules/moments.h"
#include "trireme/optim/rules/option_checks.h"
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
      scalars.push_back(adamw_scalars(options_, ++taken_[parameter], lr * multiplier_of(parameter),
                                      decay_of(parameter, options_.weight_decay), grad_scale));
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
  AdamWOptions options_;
  at::Tensor max_exp_avg_sq_;  // amsgrad's
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const AdamWOptions& options,
                                      const std::vector<OptionGroup>& groups) {
  check_options(options);
  return std::make_unique<AdamW>(std::move(parameters), options, groups);
}

}  // namespace trireme
