// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/pretend_device.h"

#include <gtest/gtest.h>

#include <exception>
#include <utility>

#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/machine.h"

namespace trireme::pretend {

c10::Device device(int index) {
  return with_index({c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)});
}

void reseed(uint64_t seed) { Machine::of_process().reseed(seed); }

void for_seeds(int n, const std::function<void()>& body) {
  for (int seed = 1; seed <= n; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    reseed(static_cast<uint64_t>(seed));
    try {
      body();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  reseed(0);
}

void synchronize() { Machine::of_process().drain(); }

c10::Stream default_stream(int index) { return c10::Stream(c10::Stream::DEFAULT, device(index)); }

c10::Stream stream_from_pool(int index) {
  return c10::Stream(c10::Stream::UNSAFE, device(index), Machine::of_process().next_stream(index));
}

void launch(const c10::Stream& stream, std::function<void()> work) {
  Machine::of_process().queue(stream).enqueue(std::move(work));
}

Hold::Hold(const c10::Stream& stream) : open_(std::make_shared<std::atomic<bool>>(false)) {
  Machine::of_process().queue(stream).enqueue([open = open_] { open->wait(false); });
}

Hold::~Hold() { release(); }

void Hold::release() {
  open_->store(true);
  open_->notify_all();
}

Counters counters() {
  const Machine& machine = Machine::of_process();
  return {machine.async_copies, machine.staged_copies, machine.host_waits, machine.operators};
}

std::set<std::string> fallbacks() { return Machine::of_process().fallbacks(); }

Lacks::Lacks(std::string op) : op_(std::move(op)) { Machine::of_process().lack(op_, true); }
Lacks::~Lacks() { Machine::of_process().lack(op_, false); }

MemoryCounts memory_counts(int index) { return Machine::of_process().memory(index).counts(); }

void reset_memory_peaks(int index) { Machine::of_process().memory(index).reset_peaks(); }

MemoryLimit::MemoryLimit(size_t bytes, int index)
    : device_(index), before_(Machine::of_process().memory(index).limit()) {
  Machine::of_process().memory(index).set_limit(bytes);
}

MemoryLimit::~MemoryLimit() { Machine::of_process().memory(device_).set_limit(before_); }

at::Tensor pinned(const at::Tensor& host) { return pin_memory(host, {}); }

size_t pinned_bytes() { return Machine::of_process().pinned().bytes(); }

at::Tensor bytes_now(const at::Tensor& t) { return for_kernels(t).clone(); }

}  // namespace trireme::pretend
