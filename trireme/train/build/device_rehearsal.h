// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/models/model.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/train/precision/precision.h"

// Whether a device has the operators of a step, asked before step 1 and before the run's folder
// holds anything. What a run computes on a device is not what it computes on the CPU (a kernel and
// its twin), so no list of operators is kept: a step is computed there, on a model that is thrown
// away.
namespace trireme {

/// A network of the layers that the run's has, as small as they can be, and a micro-batch for it.
struct LeastModel {
  std::shared_ptr<Model> model;
  at::Tensor input, target;
};

/// Forward, backward, the norm of gradients, and a step of the configured optimizer on two small
/// parameters. Throws UsageError on all ranks, in the same words, if the device of one of them has
/// no kernel for an operator: which, who needs it, and what to do. What else goes wrong meanwhile
/// is left to the run. Nothing on the CPU. `least`: empty for who brings a model of its own, whose
/// forward is not known. Every rank calls it.
void rehearse_step(const Config& config, const PrecisionPlan& precision, at::Device device,
                   const Group& group, const std::function<LeastModel()>& least);

/// The same for computation(), which computes with these parameters and changes nothing.
void rehearse(at::Device device, const Group& group, const NamedTensors& parameters,
              const std::function<void()>& computation);

}  // namespace trireme
