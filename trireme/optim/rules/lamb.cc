// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/optim/norm_kernels.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/moments.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"
#include "trireme/optim/rules/segment_lists.h"
#include "trireme/optim/rules/trust_ratio.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

// Two phases: moments and norms of all parameters, then the updates. Between them ranks that hold
// parts of one parameter add their squares.
class Lamb final : public MomentOptimizer {
 public:
  Lamb(NamedTensors parameters, const LambOptions& options, const std::vector<OptionGroup>& groups,
       std::shared_ptr<const NormParts> parts)
      : MomentOptimizer(std::move(parameters), groups),
        options_(options),
        parts_(parts ? std::move(parts) : std::make_shared<const NormParts>(parameters_)),
        adapts_(not_matching(options.no_adapt)) {}

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    std::vector<LambScalars> scalars;
    NormPairs squares(*parts_);
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t parameter = all.given(i).index;
      scalars.push_back(scalars_of(parameter, ++taken_[parameter], grad_scale));
    }
    if (all.on_device())
      for_lists(all, [&](const auto& l) { measure_lists(all, l, l.of(scalars), squares); });
    else
      for (size_t i = 0; i < all.size(); ++i) measure(all[i], scalars[i], squares);
    squares.add_over_ranks();
    std::vector<double> steps;
    for (size_t i = 0; i < all.size(); ++i)
      steps.push_back(step_of(all.given(i).index, squares, lr));
    if (all.on_device())
      for_lists(all, [&](const auto& l) {
        lamb_update(l.p, l.of(exp_avg_), l.of(exp_avg_sq_), l.of(scalars), l.of(steps));
      });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i], [&](auto r) {
          lamb_update(r.p(), r.of(exp_avg_), r.of(exp_avg_sq_), r.n, scalars[i], steps[i]);
        });
  }

 private:
  LambScalars scalars_of(size_t parameter, int64_t t, double grad_scale) const {
    LambScalars s{grad_scale, options_.beta1, options_.beta2, options_.eps,
                  decay_of(parameter, options_.weight_decay)};
    if (options_.bias_correction) {
      s.moment_scale = 1 / (1 - std::pow(options_.beta1, static_cast<double>(t)));
      s.root_scale = 1 / std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(t)));
    }
    return s;
  }

  const std::string& name(const Segment& s) const { return parameters_[s.index].first; }

  void measure(const Segment& s, const LambScalars& scalars, NormPairs& squares) {
    const bool adapts = adapts_[s.index];
    squares.measure(s, name(s), [&](auto type, int64_t begin, int64_t n, double* w, double* u) {
      using T = decltype(type);
      T *m = s.of<T>(exp_avg_) + begin, *v = s.of<T>(exp_avg_sq_) + begin;
      for (int64_t i = 0; i < n; i += kNormBlock) {  // what was just written is still in the cache
        const int64_t count = std::min(kNormBlock, n - i), block = i / kNormBlock;
        lamb_moments<T>(s.gradients<T>() + begin + i, m + i, v + i, count, scalars);
        if (adapts)
          lamb_square_sums<T>(s.parameters<T>() + begin + i, m + i, v + i, count, scalars,
                              w + block, u + block);
      }
    });
  }

  template <class Lists>
  void measure_lists(const Segments& all, const Lists& l, const std::vector<LambScalars>& scalars,
                     NormPairs& squares) {
    const std::vector<at::Tensor> m = l.of(exp_avg_), v = l.of(exp_avg_sq_);
    lamb_moments(l.g, m, v, scalars);
    const std::vector<at::Tensor> direction = lamb_direction(l.p, m, v, scalars);
    for (size_t i = 0; i < l.places().size(); ++i) {
      const Segment& s = all.given(l.places()[i]);
      if (adapts_[s.index]) squares.measure(name(s), l.p[i], direction[i]);
    }
  }

  double step_of(size_t parameter, const NormPairs& squares, double lr) const {
    const double step = lr * multiplier_of(parameter);
    if (!adapts_[parameter]) return step;
    const auto [w, u] = squares.of(parameters_[parameter].first);
    return step * lamb_ratio(std::sqrt(w), std::sqrt(u), options_.min_coeff, options_.max_coeff);
  }

  LambOptions options_;
  std::shared_ptr<const NormParts> parts_;
  std::vector<bool> adapts_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(NamedTensors parameters, const LambOptions& options,
                                     const std::vector<OptionGroup>& groups,
                                     std::shared_ptr<const NormParts> parts) {
  check_rate("LAMB", "beta1", options.beta1);
  check_rate("LAMB", "beta2", options.beta2);
  check_not_negative("LAMB", "eps", options.eps);
  check_not_negative("LAMB", "weight_decay", options.weight_decay);
  check<UsageError>(options.min_coeff >= 0 && options.min_coeff <= options.max_coeff &&
                        std::isfinite(options.max_coeff) && options.max_coeff > 0,
                    "LAMB: min_coeff is {} and max_coeff {}: they must be 0 or more, in this order",
                    options.min_coeff, options.max_coeff);
  TiedNames tied;
  unique_tensors(parameters, &tied);
  LambOptions o = options;
  o.no_adapt = with_first_names(options.no_adapt, tied);
  return std::make_unique<Lamb>(std::move(parameters), o, groups, std::move(parts));
}

}  // namespace trireme
