// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "trireme/optim/norm_kernels.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"
#include "trireme/optim/rules/segment_lists.h"
#include "trireme/optim/rules/trust_ratio.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

// Two phases: norms of all parameters, then the updates. Between them ranks that hold parts of one
// parameter add their squares.
class Lars final : public Optimizer {
 public:
  Lars(NamedTensors parameters, const LarsOptions& options, const std::vector<OptionGroup>& groups,
       std::shared_ptr<const NormParts> parts)
      : Optimizer(std::move(parameters), groups),
        options_(options),
        parts_(parts ? std::move(parts) : std::make_shared<const NormParts>(parameters_)),
        adapts_(not_matching(options.no_adapt)) {
    if (options_.momentum != 0) momentum_ = zeros();
  }

  void step(double lr, double grad_scale) override {
    auto all = segments();
    ++steps_;
    NormPairs squares(*parts_);
    for (const auto& s : all)
      if (adapts_[s.index]) measure(s, squares);
    squares.add_over_ranks();
    std::vector<LarsScalars> scalars;
    for (size_t i = 0; i < all.size(); ++i)
      scalars.push_back(scalars_of(all.given(i).index, squares, lr, grad_scale));
    if (all.on_device())
      for_lists(all, [&](const auto& l) { lars_pass(l.p, l.g, l.of(momentum_), l.of(scalars)); });
    else
      for (size_t i = 0; i < all.size(); ++i)
        run_ranges(all[i],
                   [&](auto r) { lars_pass(r.p(), r.g(), r.of(momentum_), r.n, scalars[i]); });
  }

  void state(StateVisitor& visitor) override {
    visitor.value("optim.step", steps_);
    if (momentum_.defined()) visit(visitor, "momentum", momentum_);
  }

 private:
  const std::string& name(const Segment& s) const { return parameters_[s.index].first; }

  void measure(const Segment& s, NormPairs& squares) const {
    if (!s.parameter.is_cpu()) return squares.measure(name(s), s.parameter, s.gradient);
    squares.measure(s, name(s), [&](auto type, int64_t begin, int64_t n, double* w, double* g) {
      using T = decltype(type);
      block_square_sums(s.parameters<T>() + begin, n, w);
      block_square_sums(s.gradients<T>() + begin, n, g);
    });
  }

  LarsScalars scalars_of(size_t parameter, const NormPairs& squares, double lr,
                         double grad_scale) const {
    const double decay = decay_of(parameter, options_.weight_decay);
    double ratio = 1;
    if (adapts_[parameter]) {
      const auto [w, g] = squares.of(parameters_[parameter].first);
      ratio = lars_ratio(std::sqrt(w), std::sqrt(g) * std::abs(grad_scale), decay,
                         options_.trust_coefficient, options_.eps);
    }
    return {grad_scale, decay, options_.momentum, lr * multiplier_of(parameter) * ratio};
  }

  LarsOptions options_;
  std::shared_ptr<const NormParts> parts_;
  std::vector<bool> adapts_;
  at::Tensor momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(NamedTensors parameters, const LarsOptions& options,
                                     const std::vector<OptionGroup>& groups,
                                     std::shared_ptr<const NormParts> parts) {
  check_not_negative("LARS", "momentum", options.momentum);
  check_not_negative("LARS", "weight_decay", options.weight_decay);
  check_not_negative("LARS", "eps", options.eps);
  check<UsageError>(options.trust_coefficient > 0 && std::isfinite(options.trust_coefficient),
                    "LARS: trust_coefficient is {}: it must be above 0", options.trust_coefficient);
  TiedNames tied;
  unique_tensors(parameters, &tied);
  LarsOptions o = options;
  o.no_adapt = with_first_names(options.no_adapt, tied);
  return std::make_unique<Lars>(std::move(parameters), o, groups, std::move(parts));
}

}  // namespace trireme
