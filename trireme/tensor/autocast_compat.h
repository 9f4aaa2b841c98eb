// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/autocast_mode.h>

#include "trireme/tensor/torch_compat.h"

// Autocast's part of torch_compat.h, apart because LibTorch's header brings all of ATen along. One
// function per device up to 2.3, for the CPU and CUDA alone: for another it is off, and setting it
// does nothing. One for all devices from 2.4, where the old ones warn.
namespace trireme::compat {

struct DeviceAutocast {
  bool enabled = false;
  at::ScalarType dtype = at::kBFloat16;
};

/// Of devices that a library added to LibTorch.
constexpr bool kHasPrivateAutocast = TRIREME_TORCH_AT_LEAST(2, 4);

#if TRIREME_TORCH_AT_LEAST(2, 4)
constexpr c10::DispatchKey kPrivateAutocastKey = c10::DispatchKey::AutocastPrivateUse1;
inline DeviceAutocast autocast_of(at::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
}
inline void set_autocast(at::DeviceType device, DeviceAutocast to) {
  at::autocast::set_autocast_enabled(device, to.enabled);
  at::autocast::set_autocast_dtype(device, to.dtype);
}
#else
constexpr c10::DispatchKey kPrivateAutocastKey = c10::DispatchKey::Undefined;
inline DeviceAutocast autocast_of(at::DeviceType device) {
  if (device == at::kCPU)
    return {at::autocast::is_cpu_enabled(), at::autocast::get_autocast_cpu_dtype()};
  if (device != at::kCUDA) return {};
  return {at::autocast::is_enabled(), at::autocast::get_autocast_gpu_dtype()};
}
inline void set_autocast(at::DeviceType device, DeviceAutocast to) {
  if (device == at::kCPU) {
    at::autocast::set_cpu_enabled(to.enabled);
    at::autocast::set_autocast_cpu_dtype(to.dtype);
  } else if (device == at::kCUDA) {
    at::autocast::set_enabled(to.enabled);
    at::autocast::set_autocast_gpu_dtype(to.dtype);
  }
}
#endif

}  // namespace trireme::compat
