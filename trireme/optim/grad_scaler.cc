// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/grad_scaler.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/comm/reachable.h"
#include "trireme/optim/clip.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

constexpr int64_t kNameBytes = 256;  // with the closing zero

// The values of a gradient, sparse or dense.
at::Tensor values_of(const at::Tensor& grad) {
  return grad.is_sparse() ? grad._values() : grad.detach();
}

// One transfer for all of them: gradients of a device stay there.
std::string first_by_device(const NamedTensors& parameters) {
  std::vector<at::Tensor> values;
  for (const auto& [name, p] : parameters)
    values.push_back(p.grad().defined() ? values_of(p.grad()) : at::Tensor());
  const int64_t bad = first_not_finite(values);
  return bad < 0 ? "" : parameters[static_cast<size_t>(bad)].first;
}

std::string first_bad(const NamedTensors& parameters) {
  const bool simple = std::all_of(parameters.begin(), parameters.end(), [](const auto& entry) {
    const at::Tensor& g = entry.second.grad();
    return !g.defined() || (g.device().is_cpu() && g.layout() == at::kStrided);
  });
  return simple ? first_non_finite(parameters) : first_by_device(parameters);
}

bool sane(const LossScaleOptions& o, const LossScaleState& s, int64_t steps) {
  return s.scale > 0 && s.scale <= static_cast<double>(std::numeric_limits<float>::max()) &&
         s.good_steps >= 0 && s.hysteresis >= 1 && s.skipped >= 0 && steps >= 0 &&
         s.hysteresis <= std::max<int64_t>(o.hysteresis, 1);
}

}  // namespace

GradScaler::GradScaler(LossScaleOptions options, Group group)
    : options_(options), group_(std::move(group)) {
  check_loss_scale(options_);
  state_ = first_loss_scale(options_);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  const bool half = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (half ? loss.to(at::kFloat) : loss).mul(state_.scale);
}

GradVerdict GradScaler::check(const NamedTensors& parameters) {
  c10::AutoGradMode no_grad(false);
  return decide(first_bad(parameters));
}

GradVerdict GradScaler::decide(const std::string& not_finite) {
  GradVerdict verdict;
  if (!group_) {
    verdict.finite = not_finite.empty();
    if (!verdict.finite) verdict.rank = 0;
    verdict.parameter = not_finite;
    return verdict;
  }
  c10::AutoGradMode no_grad(false);
  const int none = group_.size();
  const at::Device device = detail::reachable_device(group_, Collective::all_reduce, at::kLong);
  const at::Tensor lowest = at::full({1}, not_finite.empty() ? none : group_.rank(),
                                     at::TensorOptions(at::kLong).device(device));
  group_.all_reduce(lowest, ReduceOp::min).wait();
  const auto bad = static_cast<int>(lowest.item<int64_t>());
  if (bad == none) return verdict;

  // Ranks may hold other parameters (stages, shards), so the name itself travels.
  at::Tensor name = at::zeros({kNameBytes}, at::kByte);
  if (bad == group_.rank())
    std::copy_n(not_finite.begin(),
                std::min(not_finite.size(), static_cast<size_t>(kNameBytes - 1)),
                host_data<uint8_t>(name));
  name = name.to(device);
  group_.broadcast(name, bad).wait();
  name = name.to(at::kCPU);
  verdict.finite = false;
  verdict.rank = bad;
  verdict.parameter = reinterpret_cast<const char*>(host_data<uint8_t>(name));
  return verdict;
}

GradVerdict GradScaler::unscale_(const NamedTensors& parameters) {
  GradVerdict verdict = check(parameters);
  if (!verdict.finite) return verdict;
  c10::AutoGradMode no_grad(false);
  for (const auto& [name, p] : unique_tensors(parameters))
    if (p.grad().defined()) values_of(p.grad()).mul_(inverse());
  return verdict;
}

LossScaleMove GradScaler::update(const GradVerdict& verdict) {
  const LossScaleStep next = next_loss_scale(options_, state_, !verdict.finite);
  if (next.move == LossScaleMove::at_floor)
    throw NumericError(
        fmt::format("the gradient of '{}' is not finite on rank {} in step {} of the loss scaler, "
                    "and the loss scale {} is {}. Lower the learning rate, clip gradients, or "
                    "train in bfloat16; weights are those of the step before",
                    verdict.parameter, verdict.rank, steps_ + 1, state_.scale,
                    options_.dynamic
                        ? std::string("at its floor (min_loss_scale)")
                        : fmt::format("fixed: {} steps in a row were skipped", options_.window)),
        {verdict.rank, -1, "gradient", steps_ + 1});
  if (next.move == LossScaleMove::backed_off && (!group_ || group_.rank() == 0))
    log_info("loss scale: the gradient of '{}' overflowed on rank {}: step {} is skipped, {} -> {}",
             verdict.parameter, verdict.rank, steps_ + 1, state_.scale, next.state.scale);
  state_ = next.state;
  ++steps_;
  return next.move;
}

void GradScaler::state(StateVisitor& visitor) {
  LossScaleState s = state_;
  int64_t steps = steps_;
  visitor.value("scaler.scale", s.scale);
  visitor.value("scaler.good_steps", s.good_steps);
  visitor.value("scaler.hysteresis", s.hysteresis);
  visitor.value("scaler.skipped", s.skipped);
  visitor.value("scaler.steps", steps);
  // Another configuration than the one that was saved: as far as it allows.
  s.hysteresis = std::min(s.hysteresis, std::max<int64_t>(options_.hysteresis, 1));
  trireme::check<Corrupt>(sane(options_, s, steps),
                          "loss scaler: the saved state makes no sense (scale {}, good_steps {}, "
                          "hysteresis {}, skipped {}, steps {}): take another checkpoint",
                          s.scale, s.good_steps, s.hysteresis, s.skipped, steps);
  if (!options_.dynamic) s.scale = options_.initial;
  state_ = s;
  steps_ = steps;
}

}  // namespace trireme
