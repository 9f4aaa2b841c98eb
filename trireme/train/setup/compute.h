// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/models/model.h"

namespace trireme {

/// How a run calls its model's forward, in training and on held-out data; mixed precision is
/// implemented here. The loss is not included: models compute it in float32.
class TRIREME_API Compute {
 public:
  Compute() = default;
  virtual ~Compute();
  Compute(const Compute&) = delete;
  at::Tensor forward(const at::Tensor& input) { return forward_list({input}).at(0); }
  virtual std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) = 0;
};

/// Runs the model unchanged.
TRIREME_API std::unique_ptr<Compute> plain_compute(std::shared_ptr<Model> model);
/// For a model with half-precision parameters: converts floating-point inputs to that dtype.
TRIREME_API std::unique_ptr<Compute> half_compute(std::shared_ptr<Model> model,
                                                  at::ScalarType dtype);
/// For float32 parameters: runs forward under LibTorch's autocast. Backward runs outside it.
TRIREME_API std::unique_ptr<Compute> autocast_compute(std::shared_ptr<Model> model,
                                                      at::ScalarType dtype);

/// Converts each parameter to that dtype, permanently and in place: tensors keep their identity.
/// Call it before anything refers to their gradients or memory.
TRIREME_API void cast_parameters(torch::nn::Module& model, at::ScalarType dtype);

}  // namespace trireme
