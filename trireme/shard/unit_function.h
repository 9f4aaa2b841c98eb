// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace trireme {

/// What a backward meets at the two ends of a unit. Outlived by the graph: hold what may go weakly.
struct UnitEnds {
  std::function<void()> at_outputs;  // before anything inside runs backward
  std::function<void()> at_inputs;   // after everything inside has, for this pass
  std::function<void()> dropped;     // the graph went away, and no backward came to the inputs
};

/// Tensors as they are (same memory, no copy), with an identity in the graph: those that require
/// a gradient become outputs of a node whose backward calls at_inputs. False in `bound` where none
/// does: then nothing tells of the end.
std::vector<at::Tensor> bound_inputs(const std::vector<at::Tensor>& inputs,
                                     std::shared_ptr<UnitEnds> ends, bool* bound);
/// Likewise with at_outputs. Tensors that require no gradient come back as they are.
std::vector<at::Tensor> bound_outputs(const std::vector<at::Tensor>& outputs,
                                      std::shared_ptr<UnitEnds> ends);

}  // namespace trireme
