// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/machine.h"

#include <c10/util/Exception.h>

#include "tests/support/pretend_device/current.h"

namespace trireme::pretend {

Machine& Machine::of_process() {
  static auto* machine = new Machine;
  return *machine;
}

Machine::Machine() {
  for (int device = 0; device < kDevices; ++device) {
    memory_.push_back(std::make_unique<DeviceMemory>(mapping_, device));
    for (int64_t stream = 0; stream <= kPoolStreams; ++stream)
      queues_.push_back(std::make_unique<Queue>(device, stream));
  }
}

Queue& Machine::queue(int device, int64_t stream) {
  TORCH_CHECK(device >= 0 && device < kDevices && stream >= 0 && stream <= kPoolStreams,
              "pretend device ", device, " has no stream ", stream);
  return *queues_[static_cast<size_t>(device) * (kPoolStreams + 1) + static_cast<size_t>(stream)];
}

Queue& Machine::current_queue(const c10::Device& device) { return queue(current_stream(device)); }

int64_t Machine::next_stream(int device) {
  return next_[static_cast<size_t>(device)].fetch_add(1) % kPoolStreams + 1;
}

void Machine::reseed(uint64_t seed) {
  drain();
  for (auto& queue : queues_) queue->reseed(seed);
  for (auto& next : next_) next = 0;
}

void Machine::drain() {
  for (auto& queue : queues_) queue->drain();
}

void Machine::note_fallback(const std::string& op) {
  ++operators;
  std::lock_guard lock(mutex_);
  fallbacks_.insert(op);
}

void Machine::lack(const std::string& op, bool lacks) {
  std::lock_guard lock(mutex_);
  if (lacks)
    lacking_.insert(op);
  else
    lacking_.erase(op);
}

bool Machine::lacks(const std::string& op) const {
  std::lock_guard lock(mutex_);
  return lacking_.count(op) > 0;
}

std::set<std::string> Machine::fallbacks() const {
  std::lock_guard lock(mutex_);
  return fallbacks_;
}

}  // namespace trireme::pretend
