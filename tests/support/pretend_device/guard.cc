// SPDX-License-Identifier: Apache-2.0
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>

#include "tests/support/pretend_device/current.h"
#include "tests/support/pretend_device/machine.h"

// What LibTorch asks of a device beside its operators: c10::DeviceGuard, StreamGuard and Event.
namespace trireme::pretend {
namespace {

// A place in a stream. May be recorded again; who waits, waits for the place of that time.
class RecordedEvent {
 public:
  void record(Queue& queue) {
    const Ticket mark = queue.enqueue([] {});
    std::lock_guard lock(mutex_);
    recorded_ = mark;
  }
  Ticket recorded() const {
    std::lock_guard lock(mutex_);
    return recorded_;
  }

 private:
  mutable std::mutex mutex_;
  Ticket recorded_;
};

Queue& queue_of(const c10::Stream& s) { return Machine::of_process().queue(s); }

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device d) const override { set_current_device(with_index(d).index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.has_index()) set_current_device(d.index());
  }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }

  c10::Stream getStream(c10::Device d) const noexcept override { return current_stream(d); }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, with_index(d));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override {
    const c10::Device device = with_index(d);
    return c10::Stream(c10::Stream::UNSAFE, device,
                       Machine::of_process().next_stream(device.index()));
  }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override {
    return exchange_current_stream(s);
  }
  bool queryStream(const c10::Stream& s) const override { return has_come(queue_of(s).newest()); }
  void synchronizeStream(const c10::Stream& s) const override {
    host_wait(queue_of(s).newest(), "Stream::synchronize()");
  }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new RecordedEvent;
    static_cast<RecordedEvent*>(*event)->record(queue_of(s));
  }
  void block(void* event, const c10::Stream& s) const override {
    queue_of(s).wait_for(static_cast<RecordedEvent*>(event)->recorded());
  }
  bool queryEvent(void* event) const override {
    return !event || has_come(static_cast<RecordedEvent*>(event)->recorded());
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<RecordedEvent*>(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& s) const override {
    if (data.get())
      Machine::of_process().memory(data.device().index()).used_on(data.get(), queue_of(s));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl);

}  // namespace
}  // namespace trireme::pretend
