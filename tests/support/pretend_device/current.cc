// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/current.h"

#include <c10/util/Exception.h>

#include <array>

#include "tests/support/pretend_device/machine.h"

namespace trireme::pretend {
namespace {

struct OfThread {
  c10::DeviceIndex device = 0;
  std::array<int64_t, kDevices> stream{};
  int forbidden = 0, asked = 0;  // in vain, since it was forbidden
  uint64_t waits = 0;
};

OfThread& of_thread() {
  thread_local OfThread mine;
  return mine;
}

}  // namespace

c10::Device current_device() { return {c10::kPrivateUse1, of_thread().device}; }

void set_current_device(c10::DeviceIndex index) { of_thread().device = index; }

c10::Device with_index(c10::Device device) {
  if (!device.has_index()) return current_device();
  TORCH_CHECK(device.index() < kDevices, "there is no pretend device ",
              static_cast<int>(device.index()), "; there are ", kDevices);
  return device;
}

c10::Stream current_stream(c10::Device device) {
  device = with_index(device);
  return c10::Stream(c10::Stream::UNSAFE, device,
                     of_thread().stream[static_cast<size_t>(device.index())]);
}

c10::Stream exchange_current_stream(const c10::Stream& stream) {
  const c10::Stream before = current_stream(stream.device());
  of_thread().stream[static_cast<size_t>(before.device_index())] = stream.id();
  return before;
}

void refuse_host_wait(const char* what) {
  TORCH_CHECK(of_thread().forbidden == 0, what,
              " blocks this thread on a stream, in a scope where nothing may: order streams by "
              "events instead");
}

void host_wait(const Ticket& ticket, const char* what) {
  refuse_host_wait(what);
  ++of_thread().waits;
  ++Machine::of_process().host_waits;
  ticket.wait();
}

bool has_come(const Ticket& ticket) {
  constexpr int kPolling = 1000;
  if (ticket.done()) return true;
  if (of_thread().forbidden > 0 && ++of_thread().asked > kPolling)
    refuse_host_wait("asking again and again whether a stream has come to an event");
  return false;
}

uint64_t host_waits_of_this_thread() { return of_thread().waits; }

NoHostWaits::NoHostWaits() {
  if (of_thread().forbidden++ == 0) of_thread().asked = 0;
}
NoHostWaits::~NoHostWaits() { --of_thread().forbidden; }

}  // namespace trireme::pretend
