// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace trireme::pretend {
namespace {

constexpr int kPoison = 0xff;  // NaN, -1

std::string in_units(size_t bytes) {
  const double n = static_cast<double>(bytes);
  if (bytes < (size_t{1} << 20)) return fmt::format("{:.2f} KiB", n / 1024);
  if (bytes < (size_t{1} << 30)) return fmt::format("{:.2f} MiB", n / (1 << 20));
  return fmt::format("{:.2f} GiB", n / (1 << 30));
}

}  // namespace

DeviceMemory::DeviceMemory(const Mapping& mapping, int device)
    : mapping_(mapping), device_(device) {
  free_[0] = {kBytesPerDevice, {}};
}

void* DeviceMemory::take(size_t bytes, Queue& stream) {
  const size_t size = (std::max<size_t>(bytes, 1) + 511) / 512 * 512;
  std::unique_lock lock(mutex_);
  tidy();
  auto range = fitting(size, stream);
  if (range == free_.end()) {
    wait_for_what_is_free(lock);
    range = fitting(size, stream);
  }
  if (range == free_.end()) fail(bytes);
  return cut(range, size, stream);
}

// Forgets tickets that are done, and joins neighbours that wait for the same.
void DeviceMemory::tidy() {
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    std::erase_if(at->second.busy, [](const Ticket& t) { return t.done(); });
    if (at == free_.begin()) continue;
    const auto before = std::prev(at);
    if (before->first + before->second.size != at->first || before->second.busy != at->second.busy)
      continue;
    before->second.size += at->second.size;
    free_.erase(at);
    at = before;
  }
}

// The smallest that is large enough.
DeviceMemory::FreeRanges::iterator DeviceMemory::fitting(size_t size, const Queue& stream) {
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto& [offset, range] = *at;
    const auto others = [&](const Ticket& t) { return t.queue != &stream; };
    if (std::min(offset + range.size, std::max(limit_, offset)) - offset < size) continue;
    if (std::any_of(range.busy.begin(), range.busy.end(), others)) continue;
    if (best == free_.end() || range.size < best->second.size) best = at;
  }
  return best;
}

void* DeviceMemory::cut(FreeRanges::iterator range, size_t size, Queue& stream) {
  const size_t offset = range->first;
  Free rest = std::move(range->second);
  free_.erase(range);
  if (rest.size > size) {
    rest.size -= size;
    free_[offset + size] = std::move(rest);
  }
  char* p = mapping_.begin(device_) + offset;
  if (offset + size > touched_) {
    const size_t from = std::max(touched_, offset);
    std::memset(static_cast<char*>(mapping_.for_kernels(p)) + (from - offset), kPoison,
                offset + size - from);
    touched_ = offset + size;
  }
  taken_[offset] = {size, &stream, {}};
  counts_.allocated += size;
  ++counts_.blocks_taken;
  count();
  report(p, static_cast<int64_t>(size));
  return p;
}

void DeviceMemory::give_back(void* p) {
  std::lock_guard lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<char*>(p) - mapping_.begin(device_));
  const Taken block = std::move(taken_.at(offset));
  taken_.erase(offset);
  Free range{block.size, {}};
  for (Queue* user : block.users)
    if (!user->newest().done()) range.busy.push_back(user->newest());
  // In the order of its stream, as all that the stream does with it. Not where another still reads.
  if (range.busy.empty())
    block.home->enqueue_promptly([bytes = mapping_.for_kernels(p), size = block.size] {
      std::memset(bytes, kPoison, size);
    });
  range.busy.insert(range.busy.begin(), block.home->newest());
  free_[offset] = std::move(range);
  counts_.allocated -= block.size;
  count();
  report(p, -static_cast<int64_t>(block.size));
}

void DeviceMemory::report(void* p, int64_t bytes) const {
  if (c10::memoryProfilingEnabled())
    c10::reportMemoryUsageToProfiler(p, bytes, counts_.allocated, counts_.reserved,
                                     {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_)});
}

void DeviceMemory::used_on(const void* p, Queue& stream) {
  std::lock_guard lock(mutex_);
  const auto block =
      taken_.find(static_cast<size_t>(static_cast<const char*>(p) - mapping_.begin(device_)));
  TORCH_CHECK(block != taken_.end(), "record_stream() of memory that is not a tensor's");
  auto& users = block->second.users;
  if (&stream != block->second.home &&
      std::find(users.begin(), users.end(), &stream) == users.end())
    users.push_back(&stream);
}

// As CUDA's: before it fails, it waits until what is free is everybody's.
void DeviceMemory::wait_for_what_is_free(std::unique_lock<std::mutex>& lock) {
  std::vector<Ticket> tickets;
  for (const auto& [offset, range] : free_)
    tickets.insert(tickets.end(), range.busy.begin(), range.busy.end());
  lock.unlock();
  for (const Ticket& t : tickets) t.wait();
  lock.lock();
  tidy();
}

void DeviceMemory::count() {
  counts_.reserved = counts_.allocated;
  for (const auto& [offset, range] : free_)
    if (std::any_of(range.busy.begin(), range.busy.end(),
                    [](const Ticket& t) { return !t.done(); }))
      counts_.reserved += range.size;
  counts_.peak_allocated = std::max(counts_.peak_allocated, counts_.allocated);
  counts_.peak_reserved = std::max(counts_.peak_reserved, counts_.reserved);
}

void DeviceMemory::fail(size_t bytes) {
  ++counts_.out_of_memory;
  count();
  const size_t free = limit_ - std::min(limit_, counts_.reserved);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "pretend GPU out of memory. Tried to allocate ",
                   in_units(bytes), " (GPU ", device_, "; ", in_units(limit_), " total capacity; ",
                   in_units(counts_.allocated), " already allocated; ", in_units(free), " free; ",
                   in_units(counts_.reserved), " reserved in total)");
}

void DeviceMemory::set_limit(size_t bytes) {
  TORCH_CHECK(bytes <= kBytesPerDevice, "a pretend device has at most ", kBytesPerDevice,
              " bytes, not ", bytes);
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

size_t DeviceMemory::limit() const {
  std::lock_guard lock(mutex_);
  return limit_;
}

MemoryCounts DeviceMemory::counts() {
  std::lock_guard lock(mutex_);
  count();
  return counts_;
}

void DeviceMemory::reset_peaks() {
  std::lock_guard lock(mutex_);
  count();
  counts_.peak_allocated = counts_.allocated;
  counts_.peak_reserved = counts_.reserved;
}

}  // namespace trireme::pretend
