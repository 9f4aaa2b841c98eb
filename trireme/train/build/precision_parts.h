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

// The parts of a run that depend on its precision plan, in the order in which a run is built.
namespace trireme {

/// Returns what the run trains and saves: the model's parameters, cast as the plan says (with
/// fp16.emulate, float16 tensors beside the model's own).
NamedTensors stored_weights(Model& model, const PrecisionPlan& plan);
/// Returns the model's buffers, each once, except those that are also parameters.
NamedTensors buffers_of(const Model& model, TiedNames* tied = nullptr);
/// Copies loaded `weights` into the model, in float32.
void restore_model(Model& model, const NamedTensors& weights, const PrecisionPlan& plan);
/// Returns an empty hook if gradients travel in the dtype in which they are stored.
CommHook hook_for(const PrecisionPlan& plan);
/// Without fp16.emulate, which needs gradients.
std::unique_ptr<Compute> compute_for(const PrecisionPlan& plan, std::shared_ptr<Model> model);
std::unique_ptr<Compute> compute_for(const PrecisionPlan& plan, std::shared_ptr<Model> model,
                                     const NamedTensors& weights, Gradients& gradients);
std::unique_ptr<LossScaling> scaling_for(const PrecisionPlan& plan, Group group,
                                         int64_t step_weight);
std::unique_ptr<Optimizer> optimizer_for(const PrecisionPlan& plan, NamedTensors parameters,
                                         const MakeOptimizer& make);

}  // namespace trireme
