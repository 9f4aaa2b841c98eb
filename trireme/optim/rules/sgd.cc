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

class Sgd final : public Optimizer {
 public:
  Sgd(NamedTensors parameters, const SgdOptions& options, const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups), options_(options) {
    if (options_.momentum != 0) momentum_ = zeros();
    if (dampens()) taken_.assign(table_.size(), 0);
  }

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<SgdScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      scalars.push_back({grad_scale, lr * multiplier_of(parameter),
                         decay_of(parameter, options_.weight_decay), options_.momentum,
                         options_.nesterov, gain_of(parameter)});
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) { sgd_pass(l.p, l.g, l.of(momentum_), l.of(scalars)); });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i],
                   [&](auto r) { sgd_pass(r.p(), r.g(), r.of(momentum_), r.n, scalars[i]); });
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    if (dampens()) visit_steps(visitor, taken_);
    if (momentum_.defined()) visit(visitor, "momentum", momentum_);
  }

 private:
  bool dampens() const { return options_.momentum != 0 && options_.dampening != 0; }
  // A parameter's first gradient becomes its momentum undampened, as torch's.
  double gain_of(size_t parameter) {
    return dampens() && ++taken_[parameter] > 1 ? 1 - options_.dampening : 1;
  }

  SgdOptions options_;
  std::vector<int64_t> taken_;  // under dampening: steps of each parameter
  at::Tensor momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, const SgdOptions& options,
                                    const std::vector<OptionGroup>& groups) {
  check_options(options);
  return std::make_unique<Sgd>(std::move(parameters), options, groups);
}

}  // namespace trireme
