// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/device/kind.h"

#include "tests/support/pretend_device/machine.h"
#include "tests/support/pretend_device/pretend_device.h"

// What Trireme asks of a device beside what LibTorch's common interface tells. Statically, as the
// rest is registered.
namespace trireme::pretend {
namespace {

struct Kind final : DeviceKind {
  std::string why_none() const override { return "there are always four"; }
  std::optional<DeviceMemoryUse> memory_use(at::Device device) const override {
    const MemoryCounts counts = memory_counts(device.index());
    DeviceMemoryUse use;
    use.total = static_cast<int64_t>(Machine::of_process().memory(device.index()).limit());
    use.allocated = static_cast<int64_t>(counts.allocated);
    use.reserved = static_cast<int64_t>(counts.reserved);
    use.free = use.total - use.reserved;
    use.peak_allocated = static_cast<int64_t>(counts.peak_allocated);
    return use;
  }
  void reset_peak_memory(at::Device device) const override { reset_memory_peaks(device.index()); }
};

[[maybe_unused]] const bool registered = [] {
  set_device_kind(at::kPrivateUse1, std::make_shared<Kind>());
  return true;
}();

}  // namespace
}  // namespace trireme::pretend
