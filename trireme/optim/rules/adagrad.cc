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

class Adagrad final : public Optimizer {
 public:
  Adagrad(NamedTensors parameters, const AdagradOptions& options,
          const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups),
        options_(options),
        sum_(zeros().fill_(options.initial_accumulator_value)),
        taken_(table_.size(), 0) {}

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<AdagradScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      const auto before = static_cast<double>(taken_[parameter]++);
      scalars.push_back({grad_scale, decay_of(parameter, options_.weight_decay), options_.eps,
                         lr * multiplier_of(parameter) / (1 + before * options_.lr_decay)});
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) { adagrad_pass(l.p, l.g, l.of(sum_), l.of(scalars)); });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i],
                   [&](auto r) { adagrad_pass(r.p(), r.g(), r.of(sum_), r.n, scalars[i]); });
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    visit_steps(visitor, taken_);
    visit(visitor, "sum", sum_);
  }

 private:
  AdagradOptions options_;
  at::Tensor sum_;
  std::vector<int64_t> taken_;  // steps of each parameter, for lr_decay
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(NamedTensors parameters, const AdagradOptions& options,
                                        const std::vector<OptionGroup>& groups) {
  check_options(options);
  return std::make_unique<Adagrad>(std::move(parameters), options, groups);
}

}  // namespace trireme
