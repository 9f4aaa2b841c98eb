// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstdlib>

#include "trireme/tensor/device/kind.h"

namespace trireme::detail {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

struct Cuda final : DeviceKind {
  std::string why_none() const override {
    std::string text = "LibTorch sees no GPU: look at nvidia-smi";
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
      text += " and at CUDA_VISIBLE_DEVICES, which is '" + std::string(visible) + "'";
    return text;
  }
  std::optional<DeviceMemoryUse> memory_use(at::Device device) const override {
    const CurrentDevice current(device);
    DeviceMemoryUse use;
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return std::nullopt;
    const auto stats = allocator::getDeviceStats(device.index());
    constexpr size_t kAll = 0;  // StatType::AGGREGATE, whose namespace moved in LibTorch 2
    use.free = static_cast<int64_t>(free);
    use.total = static_cast<int64_t>(total);
    use.allocated = stats.allocated_bytes[kAll].current;
    use.peak_allocated = stats.allocated_bytes[kAll].peak;
    use.reserved = stats.reserved_bytes[kAll].current;
    return use;
  }
  void reset_peak_memory(at::Device device) const override {
    allocator::resetPeakStats(device.index());
  }
  void release_cached_memory(at::Device) const override { allocator::emptyCache(); }
  std::string why_no_autocast() const override { return ""; }
  std::string why_no_autocast_in(at::ScalarType) const override { return why_no_cuda_autocast(); }
};

}  // namespace

std::shared_ptr<const DeviceKind> cuda_kind() { return std::make_shared<Cuda>(); }

}  // namespace trireme::detail
