// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// One sentence (the operator, the device, which LibTorch, who needs it, what to do) for LibTorch's
/// error that `device` has no kernel for an operator. `needed_by`: "layer 'up'"; "": not known.
TRIREME_API std::string missing_operator_text(at::Device device,
                                              const c10::NotImplementedError& error,
                                              const std::string& needed_by = {});
/// Throws UsageError with that sentence. Returns where the device is the CPU: what LibTorch says
/// then is not about a device.
TRIREME_API void refuse_missing_operator(at::Device device, const c10::NotImplementedError& error,
                                         const std::string& needed_by = {});

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
