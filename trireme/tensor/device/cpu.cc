// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "trireme/tensor/autocast.h"
#include "trireme/tensor/device/kind.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme::detail {
namespace {

struct Cpu final : DeviceKind {
  std::string why_none() const override { return "there is always one"; }
  std::string why_no_autocast() const override { return ""; }
  std::string why_no_autocast_in(at::ScalarType dtype) const override {
    if (dtype != at::kHalf || cpu_half_lacks().empty()) return "";
    return fmt::format(
        "LibTorch {} has no float16 kernels on a CPU for {}: take BFloat16, or float16 on a CUDA "
        "device",
        TORCH_VERSION, cpu_half_lacks());
  }
};

}  // namespace

std::shared_ptr<const DeviceKind> cpu_kind() { return std::make_shared<Cpu>(); }

}  // namespace trireme::detail
