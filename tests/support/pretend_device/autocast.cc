// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/autocast_compat.h"

// Autocast on the device: LibTorch's lists of what computes in half precision and what in float32.
// 1.13's autocast knows the CPU and CUDA.
#if TRIREME_TORCH_AT_LEAST(2, 4)
#include <ATen/Operators.h>
#include <torch/library.h>

namespace trireme::pretend {
namespace {

using namespace at::autocast;

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TRIREME_IN_HALF(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TRIREME_IN_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TRIREME_WITH_FLOAT32_SUMS(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TRIREME_IN_THE_WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TRIREME_IN_HALF)
  AT_FORALL_FP32(TRIREME_IN_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TRIREME_WITH_FLOAT32_SUMS)
  AT_FORALL_PROMOTE(TRIREME_IN_THE_WIDEST)
}

}  // namespace
}  // namespace trireme::pretend
#endif
