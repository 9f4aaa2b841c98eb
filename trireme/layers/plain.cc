// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/plain.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include "trireme/layers/half_layer_norm.h"
#include "trireme/layers/placed_linear.h"

namespace trireme {
namespace {
at::Tensor uninitialised(at::IntArrayRef sizes) { return at::empty(sizes, at::dtype(at::kFloat)); }
}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias) {
  weight = register_parameter("weight", uninitialised({out, in}));
  if (with_bias) bias = register_parameter("bias", uninitialised({out}));
}
at::Tensor Linear::forward(const at::Tensor& x) const {
  // Half-precision products may have a faster way (half_products.h).
  const bool half = x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble;
  const bool widens = half && half_products() == HalfProducts::widened;
  if (!widens && detail::takes_place(x, weight, bias))
    return detail::placed_linear(x, weight, bias);
  return linear_rows(x, weight, bias);
}

LayerNorm::LayerNorm(int64_t width, double epsilon_) : epsilon(epsilon_) {
  weight = register_parameter("weight", uninitialised({width}));
  bias = register_parameter("bias", uninitialised({width}));
}
at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return layer_norm(x, weight, bias, epsilon);
}

Embedding::Embedding(int64_t count, int64_t width) {
  weight = register_parameter("weight", uninitialised({count, width}));
}
at::Tensor Embedding::forward(const at::Tensor& ids) const { return at::embedding(weight, ids); }

Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel) {
  weight = register_parameter("weight", uninitialised({out, in, kernel, kernel}));
  bias = register_parameter("bias", uninitialised({out}));
}
at::Tensor Conv2d::forward(const at::Tensor& x) const { return at::conv2d(x, weight, bias); }

}  // namespace trireme
