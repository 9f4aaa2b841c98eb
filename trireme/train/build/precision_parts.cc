// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/precision_parts.h"

#include <ATen/core/grad_mode.h>

#include "trireme/grad/hooks/cast_hook.h"
#include "trireme/train/precision/emulated_half.h"

namespace trireme {

NamedTensors stored_weights(Model& model, const PrecisionPlan& plan) {
  if (plan.emulated()) return EmulatedHalf::round_parameters(model);
  if (plan.stored != at::kFloat) cast_parameters(model, plan.stored);
  return named_parameters(model);
}

NamedTensors buffers_of(const Model& model, TiedNames* tied) {
  NamedTensors all;
  for (const auto& item : model.named_buffers()) all.emplace_back(item.key(), item.value());
  return unique_tensors(all, tied, named_parameters(model));
}

void restore_model(Model& model, const NamedTensors& weights, const PrecisionPlan& plan) {
  if (!plan.emulated()) return cast_parameters(model, at::kFloat);
  at::NoGradGuard no_grad;
  const auto copies = named_parameters(model);
  for (size_t i = 0; i < weights.size(); ++i) copies[i].second.detach().copy_(weights[i].second);
}

CommHook hook_for(const PrecisionPlan& plan) {
  return plan.wire == plan.stored ? CommHook() : cast_hook(plan.wire);
}

std::unique_ptr<Compute> compute_for(const PrecisionPlan& plan, std::shared_ptr<Model> model) {
  if (plan.autocast) return autocast_compute(std::move(model), *plan.autocast);
  if (plan.compute != at::kFloat) return half_compute(std::move(model), plan.compute);
  return plain_compute(std::move(model));
}

std::unique_ptr<Compute> compute_for(const PrecisionPlan& plan, std::shared_ptr<Model> model,
                                     const NamedTensors& weights, Gradients& gradients) {
  if (plan.emulated())
    return std::make_unique<EmulatedHalf>(std::move(model), weights,
                                          [&gradients](size_t i) { gradients.ready(i); });
  return compute_for(plan, std::move(model));
}

std::unique_ptr<LossScaling> scaling_for(const PrecisionPlan& plan, Group group,
                                         int64_t step_weight) {
  const double nominal = plan.narrow() ? nominal_weight(step_weight) : 1;
  return plan.scale ? grad_scaler_scaling(*plan.scale, std::move(group), nominal)
                    : no_loss_scaling(nominal);
}

std::unique_ptr<Optimizer> optimizer_for(const PrecisionPlan& plan, NamedTensors parameters,
                                         const MakeOptimizer& make) {
  if (plan.masters) return with_master_weights(std::move(parameters), make);
  if (plan.stored != at::kFloat) return without_master_weights(std::move(parameters), make);
  return make(std::move(parameters));
}

}  // namespace trireme
