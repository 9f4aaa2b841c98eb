// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme {

/// Visits the state of a torch::optim SGD, Adam, AdamW, RMSprop or Adagrad by parameter name:
/// "optim.exp_avg.<parameter>", "optim.steps.<parameter>", and the options of each group
/// ("optim.groups.0.lr"), all of which a load restores. Before the first step, zeros (for Adagrad,
/// the initial accumulator value) stand in for the state; loading creates missing state. Frozen
/// parameters have none. State of a parameter of which this rank holds a part
/// (tensor/parameter_layout.h) is visited as that part of the whole, as the parameter is.
///
/// A resumed run is bit-identical to an uninterrupted one. A load rejects state with a different
/// optimizer type, group layout, or amsgrad or centered setting, and names the difference.
///
/// UsageError for any other type (LBFGS), and for a parameter that the module does not have.
TRIREME_API StateWalk state_of(torch::optim::Optimizer& optimizer, const torch::nn::Module& module);
template <class Holder>
requires requires(const Holder& h) { static_cast<const torch::nn::Module&>(*h); }
StateWalk state_of(torch::optim::Optimizer& optimizer, const Holder& module) {
  return state_of(optimizer, static_cast<const torch::nn::Module&>(*module));
}

/// The same for an optimizer of arbitrary tensors, whose names `parameters` gives.
TRIREME_API void visit_torch_optimizer(torch::optim::Optimizer& optimizer,
                                       const NamedTensors& parameters, StateVisitor& visitor);

}  // namespace trireme
