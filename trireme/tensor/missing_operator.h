// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "trireme/base/export.h"

namespace trireme {

/// Throws UsageError with one sentence (the operator, the device, which LibTorch, what to do) for
/// LibTorch's error that `device` has no kernel for an operator. Returns where the device is the
/// CPU: what LibTorch says then is not about a device.
TRIREME_API void refuse_missing_operator(at::Device device, const c10::NotImplementedError& error);

/// f(), which computes on `device`, with that sentence in place of LibTorch's error.
template <class F>
decltype(auto) naming_missing_operator(at::Device device, F&& f) {
  try {
    return f();
  } catch (const c10::NotImplementedError& error) {
    refuse_missing_operator(device, error);
    throw;
  }
}

}  // namespace trireme
