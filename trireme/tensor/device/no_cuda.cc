// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/device/kind.h"

namespace trireme::detail {
namespace {

struct NoCuda final : DeviceKind {
  std::string why_none() const override {
    return "this build's LibTorch has no CUDA: build against one that has "
           "(scripts/build --torch DIR)";
  }
  std::string why_no_autocast() const override { return ""; }
  std::string why_no_autocast_in(at::ScalarType) const override { return why_no_cuda_autocast(); }
};

}  // namespace

std::shared_ptr<const DeviceKind> cuda_kind() { return std::make_shared<NoCuda>(); }

}  // namespace trireme::detail
