// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/plain.h"
#include "trireme/models/model.h"

namespace trireme {

/// The network of PyTorch's MNIST example, for [b, 1, 28, 28] images and 10 classes; 1,199,882
/// parameters:
///   conv1 1→32, 3×3, relu: [b, 32, 26, 26] · conv2 32→64, 3×3, relu: [b, 64, 24, 24] · max-pool 2:
///   [b, 64, 12, 12] · dropout1 0.25 · flatten: 9216 · fc1 9216→128, relu · dropout2 0.5 · fc2
///   128→10 · log-softmax. Loss: negative log-likelihood.
struct TRIREME_API ConvNet : Model {
  explicit ConvNet(uint64_t seed);
  at::Tensor forward(const at::Tensor& input) override;
  at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_;
  Dropout dropout1_{nullptr}, dropout2_{nullptr};
  std::shared_ptr<Linear> fc1_, fc2_;
};

}  // namespace trireme
