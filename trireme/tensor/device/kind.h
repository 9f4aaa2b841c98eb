// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

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
};

/// For a library that teaches LibTorch a device: what Trireme then knows of its memory. The last
/// one counts; devices are LibTorch's, one set for the process, and so are their kinds. Any thread.
TRIREME_API void set_device_kind(at::DeviceType type, std::shared_ptr<const DeviceKind> kind);
TRIREME_API std::shared_ptr<const DeviceKind> device_kind(at::DeviceType type);
/// The kinds but the CPU of which this process sees a device.
TRIREME_API std::vector<at::DeviceType> asynchronous_kinds();

namespace detail {
std::shared_ptr<const DeviceKind> cuda_kind();  // cuda.cc or no_cuda.cc
}

}  // namespace trireme
