// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/torch_compat.h"

// What LibTorch 2.x asks of a device through its hooks: pinned memory. 1.13 has operators for it
// (registration.cc).
#if TRIREME_TORCH_AT_LEAST(2, 4)
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "tests/support/pretend_device/machine.h"
#include "tests/support/pretend_device/pinned_memory.h"

namespace trireme::pretend {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isPinnedPtr(const void* p) const override { return Machine::of_process().pinned().holds(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Device getDeviceFromPtr(void* p) const override {
    return {c10::kPrivateUse1,
            static_cast<c10::DeviceIndex>(Machine::of_process().mapping().device_of(p))};
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

[[maybe_unused]] const bool registered_hooks = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace trireme::pretend
#endif
