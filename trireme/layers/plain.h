// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/layers/half_products.h"

// The plain layers of our models: parameters under the names that PyTorch's modules give them, and
// one operator. They are born uninitialised: models/init.h fills them by name.
namespace trireme {

struct TRIREME_API Linear : torch::nn::Module, MultipliesHalf {
  Linear(int64_t in, int64_t out, bool with_bias = true);
  at::Tensor forward(const at::Tensor& x) const;
  /// Without the bias, which the next layer adds.
  at::Tensor product(const at::Tensor& x) const { return linear_rows(x, weight); }
  at::Tensor weight, bias;  // [out, in], [out]
};

struct TRIREME_API LayerNorm : torch::nn::Module {
  explicit LayerNorm(int64_t width, double epsilon = 1e-5);
  at::Tensor forward(const at::Tensor& x) const;
  at::Tensor weight, bias;
  double epsilon;
};

struct TRIREME_API Embedding : torch::nn::Module {
  Embedding(int64_t count, int64_t width);
  at::Tensor forward(const at::Tensor& ids) const;
  at::Tensor weight;  // [count, width]
};

struct TRIREME_API Conv2d : torch::nn::Module {
  Conv2d(int64_t in, int64_t out, int64_t kernel);
  at::Tensor forward(const at::Tensor& x) const;  // [b, in, h, w]: stride 1, no padding
  at::Tensor weight, bias;                        // [out, in, kernel, kernel], [out]
};

}  // namespace trireme
