// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/device.h"

namespace trireme {

/// What LibTorch's common interface does not tell about a kind of device. Streams, events and
/// operators go through that interface (c10::impl::DeviceGuardImplInterface) for every kind alike.
struct DeviceKind {
  virtual ~DeviceKind() = default;
  /// Why there is no device of this kind, and what to do about it, if there is none.
  virtual std::string why_none() const = 0;
  virtual std::optional<DeviceMemoryUse> memory_use(at::Device) const { return std::nullopt; }
  virtual void reset_peak_memory(at::Device) const {}
  virtual void release_cached_memory(at::Device) const {}
  /// Why LibTorch's autocast (tensor/autocast.h) would have no effect on this kind; "" if it has.
  /// By default as for a device that a library added to LibTorch.
  virtual std::string why_no_autocast() const;
  /// Why this build or machine cannot compute so in `dtype`, bfloat16 or float16, and what to do
  /// about it; "" if it can.
  virtual std::string why_no_autocast_in(at::ScalarType) const { return ""; }
};

/// The kinds on which ranks may compute, the CPU first.
inline constexpr std::array<at::DeviceType, 3> kDeviceKinds = {at::kCPU, at::kCUDA,
                                                               at::kPrivateUse1};

/// For a library that teaches LibTorch a device: what Trireme then knows of its memory. The last
/// one counts; devices are LibTorch's, one set for the process, and so are their kinds. Any thread.
TRIREME_API void set_device_kind(at::DeviceType type, std::shared_ptr<const DeviceKind> kind);
TRIREME_API std::shared_ptr<const DeviceKind> device_kind(at::DeviceType type);
/// The kinds but the CPU of which this process sees a device.
TRIREME_API std::vector<at::DeviceType> asynchronous_kinds();

namespace detail {
std::shared_ptr<const DeviceKind> cpu_kind();
std::shared_ptr<const DeviceKind> cuda_kind();  // cuda.cc or no_cuda.cc
/// why_no_autocast_in() of both.
std::string why_no_cuda_autocast();
}  // namespace detail

}  // namespace trireme
