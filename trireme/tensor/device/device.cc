// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/device.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/tensor/device/kind.h"

namespace trireme {
namespace {

using Guard = c10::impl::DeviceGuardImplInterface;

const Guard* guard_of(at::DeviceType type) {
  return c10::impl::device_guard_impl_registry[static_cast<size_t>(type)].load();
}

const Guard& present(at::Device device) {
  const Guard* guard = guard_of(device.type());
  check<UsageError>(guard, "there is no device '{}': {}", device_text(device),
                    device_kind(device.type())->why_none());
  return *guard;
}

at::Device parsed(const std::string& wanted) {
  try {
    const at::Device device(wanted);
    if (std::count(kDeviceKinds.begin(), kDeviceKinds.end(), device.type())) return device;
  } catch (const c10::Error&) {
  }
  fail<UsageError>("device '{}': use auto, cpu, cuda, cuda:N or privateuseone", wanted);
}

}  // namespace

int device_count(at::DeviceType type) {
  if (type == at::kCPU) return 1;
  const Guard* guard = guard_of(type);
  return guard ? guard->deviceCount() : 0;
}

std::string device_text(at::Device device) { return device.str(); }

at::Device choose_device(const std::string& wanted, int local_rank) {
  if (wanted == "auto")
    return choose_device(device_count(at::kCUDA) > 0 ? "cuda" : "cpu", local_rank);
  const at::Device device = parsed(wanted);
  if (device.is_cpu()) return at::kCPU;
  const std::string kind = c10::DeviceTypeName(device.type(), true);
  const int there = device_count(device.type()),
            number = device.has_index() ? device.index() : local_rank;
  check<UsageError>(there > 0, "device '{}': {}", wanted, device_kind(device.type())->why_none());
  const std::string seen = there == 1
                               ? fmt::format("one, {}:0", kind)
                               : fmt::format("{}, {}:0 to {}:{}", there, kind, kind, there - 1);
  if (device.has_index())
    check<UsageError>(number < there, "device '{}' is not there: this process sees {}", wanted,
                      seen);
  else
    check<UsageError>(
        number < there,
        "device '{}': rank {} of this host wants {}:{}, and this process sees {}: start "
        "as many ranks on a host as it has devices",
        wanted, local_rank, kind, number, seen);
  return {device.type(), static_cast<c10::DeviceIndex>(number)};
}

at::Device with_index(at::Device device) {
  if (device.has_index() || device.is_cpu()) return device;
  return present(device).getDevice();
}

std::optional<DeviceMemoryUse> memory_use(at::Device device) {
  return device_kind(device.type())->memory_use(with_index(device));
}
void reset_peak_memory(at::Device device) {
  device_kind(device.type())->reset_peak_memory(with_index(device));
}
void release_cached_memory(at::Device device) {
  device_kind(device.type())->release_cached_memory(with_index(device));
}

CurrentDevice::CurrentDevice(at::Device device) : before_(device) {
  if (!device.is_cpu()) before_ = present(device).exchangeDevice(with_index(device));
}
CurrentDevice::~CurrentDevice() {
  if (!before_.is_cpu()) guard_of(before_.type())->uncheckedSetDevice(before_);
}

bool DeviceEvent::reached() const { return !event_ || event_->query(); }

bool DeviceEvent::wait_on_host(Deadline deadline) const {
  // LibTorch 1.13 has no call for it. Looks that are further and further apart.
  for (auto pause = std::chrono::microseconds(5); !reached();
       pause = std::min(2 * pause, std::chrono::microseconds(200))) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

DeviceStream DeviceStream::current(at::Device device) {
  DeviceStream stream(with_index(device));
  if (is_asynchronous(device)) stream.stream_ = present(device).getStream(stream.device_);
  return stream;
}

DeviceStream DeviceStream::another(at::Device device) {
  DeviceStream stream(with_index(device));
  if (is_asynchronous(device))
    stream.stream_ = present(device).getStreamFromGlobalPool(stream.device_);
  return stream;
}

DeviceEvent DeviceStream::record() const {
  DeviceEvent event;
  if (!stream_) return event;
  event.event_ = std::make_shared<c10::Event>(device_.type());
  event.event_->record(*stream_);
  return event;
}

void DeviceStream::wait(const DeviceEvent& event) const {
  if (!event.event_) return;
  if (stream_)
    event.event_->block(*stream_);
  else
    event.wait_on_host();  // the CPU's "stream" is this thread
}

void DeviceStream::uses(const at::Tensor& t) const {
  if (stream_ && t.defined() && t.device().type() == device_.type())
    present(device_).recordDataPtrOnStream(t.storage().data_ptr(), *stream_);
}

void DeviceStream::synchronize() const {
  if (stream_) present(device_).synchronizeStream(*stream_);
}

StreamScope::StreamScope(const DeviceStream& stream) {
  if (stream.stream_) before_ = present(stream.device()).exchangeStream(*stream.stream_);
}
StreamScope::~StreamScope() {
  if (before_) guard_of(before_->device_type())->exchangeStream(*before_);
}

at::Tensor host_buffer(at::IntArrayRef sizes, at::ScalarType dtype, at::Device partner) {
  const at::Tensor t = at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kCPU));
  if (!is_asynchronous(partner) || t.numel() == 0) return t;
  return t.pin_memory(at::Device(partner.type()));
}

void copy_in_stream_order(const at::Tensor& to, const at::Tensor& from) { to.copy_(from, true); }

}  // namespace trireme
