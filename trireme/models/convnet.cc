// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/convnet.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/relu.h>

#include "trireme/base/check.h"
#include "trireme/models/init.h"

namespace trireme {

ConvNet::ConvNet(uint64_t seed)
    : Model("ConvNet"),
      conv1_(register_module("conv1", std::make_shared<Conv2d>(1, 32, 3))),
      conv2_(register_module("conv2", std::make_shared<Conv2d>(32, 64, 3))),
      dropout1_(register_module("dropout1", Dropout(0.25))),
      dropout2_(register_module("dropout2", Dropout(0.5))),
      fc1_(register_module("fc1", std::make_shared<Linear>(9216, 128))),
      fc2_(register_module("fc2", std::make_shared<Linear>(128, 10))) {
  init_uniform_fan_in(*this, seed);
  name_dropouts(*this);
}

at::Tensor ConvNet::forward(const at::Tensor& input) {
  check<UsageError>(
      input.dim() == 4 && input.size(1) == 1 && input.size(2) == 28 && input.size(3) == 28,
      "convnet: the input must be [b, 1, 28, 28]: choose data of that shape (IDX or digits)");
  // relu and max commute, so the second relu runs on the pooled quarter: the same numbers.
  auto x = at::relu(conv1_->forward(input));
  x = at::relu(at::max_pool2d(conv2_->forward(x), 2));
  x = dropout1_->forward(x).flatten(1);
  x = dropout2_->forward(at::relu(fc1_->forward(x)));
  return at::log_softmax(fc2_->forward(x), 1);
}

at::Tensor ConvNet::loss_sum(const at::Tensor& output, const at::Tensor& target) {
  return at::nll_loss(output.to(at::kFloat), target, {}, at::Reduction::Sum);
}

}  // namespace trireme
