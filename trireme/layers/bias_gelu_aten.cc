// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/bias_gelu_aten.h"

#include <ATen/ops/gelu.h>

at::Tensor trireme::detail::bias_gelu_aten(const at::Tensor& x, const at::Tensor& bias) {
  return at::gelu(x.add(bias), "tanh");
}
