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

/// The state of a torch::optim SGD, Adam, AdamW, RMSprop or Adagrad by the names of the parameters:
/// "optim.exp_avg.<parameter>", "optim.steps.<parameter>", and the options of each group
/// ("optim.groups.0.lr"), all of which a load restores. Before the first step there are zeros where
/// the state will be; a load makes state that is not there yet. Frozen parameters have none.
///
/// The step after a load has the bits of a run that was not interrupted. A load refuses, by name,
/// the state of another type of optimizer, of other groups, and of other amsgrad or centered.
///
/// UsageError for another type (LBFGS), and for a parameter that the module does not have.
TRIREME_API StateWalk state_of(torch::optim::Optimizer& optimizer, const torch::nn::Module& module);
template <class Holder>
requires requires(const Holder& h) { static_cast<const torch::nn::Module&>(*h); }
StateWalk state_of(torch::optim::Optimizer& optimizer, const Holder& module) {
  return state_of(optimizer, static_cast<const torch::nn::Module&>(*module));
}

/// The same for an optimizer of any tensors, which have these names.
TRIREME_API void visit_torch_optimizer(torch::optim::Optimizer& optimizer,
                                       const NamedTensors& parameters, StateVisitor& visitor);

}  // namespace trireme
