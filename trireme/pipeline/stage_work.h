// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "trireme/pipeline/split_backward.h"

namespace trireme::pipeline {

using Tensors = std::vector<at::Tensor>;

/// What a stage keeps of one micro-batch, from its forward to its last gradient.
struct StageWork {
  Tensors inputs;            // leaves, where a gradient of them is wanted
  Tensors outputs;           // of the last stage: the loss
  Tensors output_gradients;  // of the outputs that require one, in their order; empty: 1
  Tensors input_gradients;   // likewise
  std::optional<SplitBackward> split;

  /// The outputs of the stage before, as leaves of this stage's graph: same memory.
  static Tensors leaves_of(const Tensors& outputs);
  /// Those that require a gradient.
  static Tensors trained(const Tensors& tensors);

  void backward();
  void input_gradient();
  void weight_gradient();
};

}  // namespace trireme::pipeline
