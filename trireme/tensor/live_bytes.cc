// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/live_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace trireme {
namespace {

// The totals' type is int64_t up to 2.0 and size_t later.
template <class Member>
struct Totals;
template <class C, class T>
struct Totals<void (C::*)(void*, int64_t, T, T, c10::Device)> {
  using type = T;
};
using Total = Totals<decltype(&c10::MemoryReportingInfoBase::reportMemoryUsage)>::type;

struct Counter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, Total, Total, c10::Device device) override {
    if (only && *only != device.type()) return;
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::optional<at::DeviceType> only;
  int64_t now = 0, peak = 0;
};

}  // namespace

struct LiveBytes::Impl {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

LiveBytes::LiveBytes(std::optional<at::DeviceType> only) : impl_(std::make_unique<Impl>()) {
  impl_->counter->only = only;
}
LiveBytes::~LiveBytes() = default;
int64_t LiveBytes::now() const { return impl_->counter->now; }
int64_t LiveBytes::peak() const { return impl_->counter->peak; }
void LiveBytes::reset_peak() { impl_->counter->peak = impl_->counter->now; }

}  // namespace trireme
