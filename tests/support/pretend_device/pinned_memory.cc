// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/pinned_memory.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

#include "tests/support/pretend_device/compat.h"
#include "tests/support/pretend_device/machine.h"

namespace trireme::pretend {

c10::DataPtr PinnedMemory::allocate(size_t bytes) {
  const c10::Device host(c10::kCPU);
  if (bytes == 0) return {nullptr, host};
  const size_t size = (bytes + 63) / 64 * 64;
  auto* p = static_cast<char*>(std::aligned_alloc(64, size));
  if (!p) throw std::bad_alloc();
  std::lock_guard lock(mutex_);
  free_what_is_done();
  taken_[p].size = size;
  return {p, p, &PinnedMemory::give_back, host};
}

void PinnedMemory::give_back(void* p) {
  PinnedMemory& all = Machine::of_process().pinned();
  std::lock_guard lock(all.mutex_);
  auto block = all.taken_.extract(static_cast<const char*>(p));
  all.waiting_.insert(std::move(block));
  all.free_what_is_done();
}

void PinnedMemory::free_what_is_done() {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto& users = at->second.users;
    if (std::all_of(users.begin(), users.end(), [](const Ticket& t) { return t.done(); })) {
      std::free(const_cast<char*>(at->first));
      at = waiting_.erase(at);
    } else {
      ++at;
    }
  }
}

PinnedMemory::Blocks::const_iterator PinnedMemory::around(const void* p) const {
  const auto after = taken_.upper_bound(static_cast<const char*>(p));
  if (after == taken_.begin()) return taken_.end();
  const auto at = std::prev(after);
  return static_cast<const char*>(p) < at->first + at->second.size ? at : taken_.end();
}

bool PinnedMemory::holds(const void* p) const {
  std::lock_guard lock(mutex_);
  return around(p) != taken_.end();
}

void PinnedMemory::used(const void* p, Ticket by) {
  std::lock_guard lock(mutex_);
  const auto block = around(p);
  if (block == taken_.end()) return;
  auto& users = taken_[block->first].users;
  std::erase_if(users, [](const Ticket& t) { return t.done(); });
  users.push_back(by);
}

size_t PinnedMemory::bytes() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [p, block] : taken_) sum += block.size;
  return sum;
}

size_t PinnedMemory::bytes_waiting() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [p, block] : waiting_) sum += block.size;
  return sum;
}

c10::Allocator& pinned_allocator() {
  struct Pinned final : AllocatorBase {
    c10::DataPtr allocate_bytes(size_t bytes) const override {
      return Machine::of_process().pinned().allocate(bytes);
    }
  };
  static auto* allocator = new Pinned;
  return *allocator;
}

}  // namespace trireme::pretend
