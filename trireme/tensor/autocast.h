// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trireme/base/export.h"

// Mixed precision by LibTorch's autocast: inside a guard matmul, linear, convolution … compute in
// bfloat16 or float16 from float32 parameters, which get float32 gradients. All of it is state of
// the thread.
namespace trireme {

/// This thread's autocast, of the devices we train on.
struct AutocastState {
  struct Device {
    bool enabled = false;
    at::ScalarType dtype = at::kBFloat16;
    bool operator==(const Device&) const = default;
  };
  Device cpu, cuda;
  bool cache = true;  // each weight is cast once in a region, not once in each use
  bool operator==(const AutocastState&) const = default;

  TRIREME_API static AutocastState current();
};

/// As Python's torch.autocast: from construction to destruction, which are on one thread, last come
/// first gone. Restores what was there before; the end of the outermost guard forgets the cast
/// weights, so that the next one sees what the optimizer wrote. Backward runs outside:
///
///   { AutocastGuard bf16(at::kCPU, at::kBFloat16); loss = f(net->forward(x), y); }
///   loss.backward();
class TRIREME_API AutocastGuard {
 public:
  /// kCPU or kCUDA; kBFloat16 or kHalf, or nothing: autocast is off inside. Throws UsageError for
  /// what check_autocast() refuses; the thread's state is then as it was.
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype, bool cache = true);
  /// All of it as it was elsewhere.
  explicit AutocastGuard(const AutocastState& state);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;

 private:
  AutocastState before_;
};

/// Throws UsageError with the reason where this build of LibTorch on this machine cannot compute
/// so: another device or dtype, CUDA without a GPU, float16 on a CPU without its kernels (1.13).
TRIREME_API void check_autocast(at::DeviceType device, at::ScalarType dtype);

namespace detail {
/// "mm, conv2d, layer_norm": what this LibTorch cannot do with float16 on a CPU. "": nothing lacks.
TRIREME_API const std::string& cpu_half_lacks();
}  // namespace detail

}  // namespace trireme
