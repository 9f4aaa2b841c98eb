// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/optim/flat_kernels.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/tensor_passes.h"

namespace trireme {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(NamedTensors parameters, const AdamWOptions& options,
        const std::vector<OptionGroup>& groups)
      : Optimizer(std::move(parameters), groups),
        options_(options),
        exp_avg_(zeros()),
        exp_avg_sq_(zeros()),
        taken_(table_.size(), 0) {}

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    for (const auto& s : all) {
      const AdamWScalars scalars = scalars_of(s.index, ++taken_[s.index], lr, grad_scale);
      if (!s.parameter.is_cpu())
        adamw_pass(s.parameter.view({s.numel}), s.gradient.view({s.numel}),
                   exp_avg_.narrow(0, s.offset, s.numel), exp_avg_sq_.narrow(0, s.offset, s.numel),
                   scalars);
      else if (s.parameter.scalar_type() == at::kFloat)
        run<float>(s, scalars);
      else
        run<double>(s, scalars);
    }
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    visit_steps(visitor, taken_);
    visit(visitor, "exp_avg", exp_avg_);
    visit(visitor, "exp_avg_sq", exp_avg_sq_);
  }

 private:
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
      s.root_scale = 1 / std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(t)));
    }
    return s;
  }

  template <class T>
  void run(const Segment& s, const AdamWScalars& scalars) {
    T* p = s.parameter.data_ptr<T>();
    const T* g = s.gradient.data_ptr<T>();
    T* m = exp_avg_.data_ptr<T>() + s.offset;
    T* v = exp_avg_sq_.data_ptr<T>() + s.offset;
    for_ranges(s.numel, [&](int64_t begin, int64_t end) {
      adamw_pass(p + begin, g + begin, m + begin, v + begin, end - begin, scalars);
    });
    bump_version(s.parameter);
  }

  AdamWOptions options_;
  at::Tensor exp_avg_, exp_avg_sq_;
  std::vector<int64_t> taken_;  // steps of each parameter: one without a gradient does not age
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const AdamWOptions& options,
                                      const std::vector<OptionGroup>& groups) {
  check<UsageError>(!options.amsgrad, "AdamW: amsgrad is not supported: set it to false");
  check<UsageError>(
      options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
      "AdamW: betas are ({}, {}): both must lie in [0, 1)", options.beta1, options.beta2);
  check<UsageError>(options.eps >= 0 && options.weight_decay >= 0,
                    "AdamW: eps ({}) and weight_decay ({}) must not be negative", options.eps,
                    options.weight_decay);
  return std::make_unique<AdamW>(std::move(parameters), options, groups);
}

}  // namespace trireme
