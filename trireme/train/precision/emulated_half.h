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

/// fp16.emulate: parameters and gradients are float16, arithmetic is float32, where LibTorch has no
/// float16 kernels. The model's own tensors are the float32 copies: filled from the parameters
/// before each forward; a gradient that reaches one is rounded to float16, added to the parameter's
/// and dropped. Values that are loaded into the model (torch::load()) are rounded into the
/// parameters before the next forward. Bytes: 4 a parameter beside the float16 ones, and one
/// gradient in float32.
class TRIREME_API EmulatedHalf final : public Compute {
 public:
  /// The float16 parameters of a float32 model: rounded once, requiring what the model's require.
  /// The model's values are rounded with them.
  static NamedTensors round_parameters(Model& model);

  /// `parameters` are those, `ready(i)` is told that the gradient of the i-th of those that require
  /// one has got a contribution. One thread.
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
