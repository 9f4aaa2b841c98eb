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

class Rmsprop final : public Optimizer {
 public:
  Rmsprop(NamedTensors parameters, const RmspropOptions& options,
          const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups), options_(options), square_avg_(zeros()) {
    if (options_.centered) grad_avg_ = zeros();
    if (options_.momentum != 0) momentum_ = zeros();
  }

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<RmspropScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      scalars.push_back({grad_scale, decay_of(parameter, options_.weight_decay), options_.alpha,
                         options_.eps, options_.momentum, options_.centered,
                         lr * multiplier_of(parameter)});
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) {
        rmsprop_pass(l.p, l.g, l.of(square_avg_), l.of(grad_avg_), l.of(momentum_), l.of(scalars));
      });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i], [&](auto r) {
          rmsprop_pass(r.p(), r.g(), r.of(square_avg_), r.of(grad_avg_), r.of(momentum_), r.n,
                       scalars[i]);
        });
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    visit(visitor, "square_avg", square_avg_);
    if (grad_avg_.defined()) visit(visitor, "grad_avg", grad_avg_);
    if (momentum_.defined()) visit(visitor, "momentum", momentum_);
  }

 private:
  RmspropOptions options_;
  at::Tensor square_avg_, grad_avg_, momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(NamedTensors parameters, const RmspropOptions& options,
                                        const std::vector<OptionGroup>& groups) {
  check_rate("RMSprop", "alpha", options.alpha);
  check_not_negative("RMSprop", "eps", options.eps);
  check_not_negative("RMSprop", "weight_decay", options.weight_decay);
  check_not_negative("RMSprop", "momentum", options.momentum);
  return std::make_unique<Rmsprop>(std::move(parameters), options, groups);
}

}  // namespace trireme
