// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/device/kind.h"

// Mixed precision through LibTorch's autocast: inside a guard, matmul, linear, convolution and the
// like compute in bfloat16 or float16 from float32 parameters, which get float32 gradients. All of
// it is thread-local state.
namespace trireme {

/// This thread's autocast settings for the devices that we train on.
struct AutocastState {
  struct Device {
    bool enabled = false;
    at::ScalarType dtype = at::kBFloat16;
    bool operator==(const Device&) const = default;
  };
  std::array<Device, kDeviceKinds.size()> by_kind{};  // in the order of kDeviceKinds
  bool cache = true;  // each weight is cast once per region, not once per use
  bool operator==(const AutocastState&) const = default;

  TRIREME_API static AutocastState current();
  /// The settings of one of kDeviceKinds; UsageError for another kind.
  TRIREME_API Device& of(at::DeviceType device);
};

/// Like Python's torch.autocast, it is in effect from construction to destruction, which must
/// happen on one thread and in LIFO order. It restores the previous settings; when the outermost
/// guard ends, cached casts of weights are dropped, so that the next guard sees what the optimizer
/// wrote. Backward runs outside the guard:
///
///   { AutocastGuard bf16(at::kCPU, at::kBFloat16); loss = f(net->forward(x), y); }
///   loss.backward();
class TRIREME_API AutocastGuard {
 public:
  /// `device`: kCPU, kCUDA, or kPrivateUse1 where has_autocast() says so. `dtype`: kBFloat16 or
  /// kHalf; nullopt turns autocast off inside the guard. Throws UsageError for what
  /// check_autocast() refuses, leaving the thread's state unchanged.
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype, bool cache = true);
  /// Applies settings captured elsewhere with AutocastState::current().
  explicit AutocastGuard(const AutocastState& state);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;

 private:
  AutocastState before_;
};

/// Whether LibTorch can compute so on that kind of device: the CPU, CUDA; from LibTorch 2.4 on a
/// library's own (kPrivateUse1), if that has registered its operators for it.
TRIREME_API bool has_autocast(at::DeviceType device);

/// Throws UsageError with the reason if this build of LibTorch cannot compute that way on this
/// machine: an unsupported device or dtype, CUDA without a GPU, or float16 on a CPU in a version
/// without its kernels (1.13).
TRIREME_API void check_autocast(at::DeviceType device, at::ScalarType dtype);

namespace detail {
/// The operations that this LibTorch lacks for float16 on a CPU, e.g. "mm, conv2d, layer_norm"; ""
/// if none is missing.
TRIREME_API const std::string& cpu_half_lacks();
/// The same of any device, tried anew.
TRIREME_API std::string half_lacks(at::Device device);
}  // namespace detail

}  // namespace trireme
