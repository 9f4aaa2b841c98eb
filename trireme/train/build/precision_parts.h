// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/optim/master_weights.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/gradients/gradients.h"
#include "trireme/train/precision/loss_scaling.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/setup/compute.h"

// A precision plan → the parts of a run that differ with it. In the order in which a run is built.
namespace trireme {

/// What the run trains and saves: the model's parameters, cast where the plan says so
/// (fp16.emulate: float16 tensors beside the model's own).
NamedTensors stored_weights(Model& model, const PrecisionPlan& plan);
/// The model's buffers, each once, without what is a parameter as well.
NamedTensors buffers_of(const Model& model, TiedNames* tied = nullptr);
/// The other way: loaded `weights` into the model, in float32.
void restore_model(Model& model, const NamedTensors& weights, const PrecisionPlan& plan);
/// Empty where gradients travel as they are kept.
CommHook hook_for(const PrecisionPlan& plan);
std::unique_ptr<Compute> compute_for(const PrecisionPlan& plan, std::shared_ptr<Model> model,
                                     const NamedTensors& weights, Gradients& gradients);
std::unique_ptr<LossScaling> scaling_for(const PrecisionPlan& plan, Group group,
                                         int64_t step_weight);
std::unique_ptr<Optimizer> optimizer_for(const PrecisionPlan& plan, NamedTensors parameters,
                                         const MakeOptimizer& make);

}  // namespace trireme
