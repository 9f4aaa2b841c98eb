// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// A backward in two halves: the gradients of the inputs first, those of the parameters at any
/// later time. It is for any module: where the paths from the outputs to the inputs part from those
/// to the parameters, the first half notes the gradient that arrives, and the second half begins
/// there, so that nothing is computed twice by LibTorch's own operators. (A function of one's own
/// that computes all of its gradients at once does so in both halves.) The result has the bits of
/// one backward.
///
/// `outputs`: at least one requires a gradient; `inputs`: leaves; those that require
/// none are left out.
/// Leaves that are reached other than the inputs count as parameters, whichever they are. Between
/// the halves this object keeps the graph and the noted gradients, and of what forward saved that
/// of the nodes where the second half begins: the inputs of a layer, not what was computed between
/// layers. A parameter that takes part in two places, of which one lies behind the other, is not
/// split: the first half is then the whole backward. (The second half of
/// torch.distributed.pipelining's stage_backward_weight; Qi et al., Zero Bubble Pipeline
/// Parallelism, 2023.)
class TRIREME_API SplitBackward {
 public:
  SplitBackward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs);
  SplitBackward(SplitBackward&&) = default;

  /// Returns the gradient of each input; undefined for one that requires none or that
  /// the outputs do not depend on. `gradients`: of each output; undefined for the 1 of a scalar.
  /// Call it once, first.
  std::vector<at::Tensor> input_gradients(const std::vector<at::Tensor>& gradients);
  /// Accumulates into grad() of the parameters, as backward() does and in its order, and lets go of
  /// the graph. Call it once, after input_gradients().
  void weight_gradients();

 private:
  std::vector<at::Tensor> outputs_, inputs_;
  std::function<void()> rest_;
};

}  // namespace trireme
