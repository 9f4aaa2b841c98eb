// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/models/model.h"

namespace trireme {

/// How a run calls its model's forward, while training and on held-out data: the seam of mixed
/// precision. The loss is not in it: models compute that in float32.
class TRIREME_API Compute {
 public:
  Compute() = default;
  virtual ~Compute();
  Compute(const Compute&) = delete;
  at::Tensor forward(const at::Tensor& input) { return forward_list({input}).at(0); }
  virtual std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) = 0;
};

/// As the model is.
TRIREME_API std::unique_ptr<Compute> plain_compute(std::shared_ptr<Model> model);
/// A model of half-precision parameters: floating inputs become of that dtype.
TRIREME_API std::unique_ptr<Compute> half_compute(std::shared_ptr<Model> model,
                                                  at::ScalarType dtype);
/// float32 parameters under LibTorch's autocast. Backward runs outside.
TRIREME_API std::unique_ptr<Compute> autocast_compute(std::shared_ptr<Model> model,
                                                      at::ScalarType dtype);

/// Makes each parameter of that dtype, in place and for good: tensors keep their identity. Before
/// anybody holds their gradients or memory.
TRIREME_API void cast_parameters(torch::nn::Module& model, at::ScalarType dtype);

}  // namespace trireme
