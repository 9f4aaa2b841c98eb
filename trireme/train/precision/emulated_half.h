// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/storage_mark.h"
#include "trireme/tensor/torch_compat.h"
#include "trireme/train/setup/compute.h"

namespace trireme {

/// Implements fp16.emulate: parameters and gradients are float16 and arithmetic is float32, for a
/// LibTorch without float16 kernels. The model's own tensors are float32 copies, filled from the
/// parameters before each forward; a gradient of such a copy is rounded to float16, added to the
/// parameter's gradient and freed. Values loaded into the model (torch::load()) are rounded into
/// the parameters before the next forward. Memory: 4 bytes per parameter besides the float16 ones,
/// and one gradient in float32.
class TRIREME_API EmulatedHalf final : public Compute {
 public:
  /// Returns the float16 parameters of a float32 model, rounded once, with the model's
  /// requires_grad. The model's own values are rounded as well.
  static NamedTensors round_parameters(Model& model);

  /// `parameters` come from round_parameters(). `ready(i)` is called when the gradient of the i-th
  /// parameter that requires one has received a contribution. Use from one thread.
  EmulatedHalf(std::shared_ptr<Model> model, const NamedTensors& parameters,
               std::function<void(size_t)> ready);
  ~EmulatedHalf() override;
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override;

 private:
  void arrived(size_t i);
  void follow();

  struct Pair {
    at::Tensor half, copy;
    StorageMark mark;  // of the copy
  };
  std::shared_ptr<Model> model_;
  std::vector<Pair> all_, trained_;
  std::function<void(size_t)> ready_;
  std::vector<std::unique_ptr<compat::GradHook>> hooks_;  // by trained_
};

}  // namespace trireme
