// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/layers/plain.h"
#include "trireme/models/model.h"

namespace trireme {

/// A small convolutional network for [b, 1, 28, 28] images and 10 classes:
///   conv1 1→20, 5×5, relu: [b, 20, 24, 24] · conv2 20→20, 5×5, relu: [b, 20, 20, 20] · max-pool 2:
///   [b, 20, 10, 10] flatten: 2000 · fc1 2000→50, relu · fc2 50→10 · log-softmax. Loss: negative
///   log-likelihood.
/// The example that this follows writes fc1 as 320→50. 320 = 20·4·4 is what a pool after *each*
/// convolution leaves; with its one pool, after the second, 20·10·10 = 2000 features reach the
/// linear layer, so 2000 it is here.
struct TRIREME_API Net : Model {
  explicit Net(uint64_t seed);
  at::Tensor forward(const at::Tensor& input) override;
  at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

}  // namespace trireme
