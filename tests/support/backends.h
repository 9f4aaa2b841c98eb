// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <string>

#include "trireme/comm/registry.h"

namespace trireme::testing {

/// Whether this build has the backend; who skips for want of it says so.
inline bool present(const std::string& backend) {
  const auto names = detail::present_backends();
  return std::find(names.begin(), names.end(), backend) != names.end();
}

/// Of this machine, as LibTorch sees it. One without CUDA says 0.
inline int gpus() {
  const auto* cuda = c10::impl::device_guard_impl_registry[static_cast<size_t>(at::kCUDA)].load();
  return cuda ? static_cast<int>(cuda->deviceCount()) : 0;
}

}  // namespace trireme::testing
