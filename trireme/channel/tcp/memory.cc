// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::channel::tcp {
namespace {

constexpr size_t kAlignment = 64;
constexpr uint64_t kSmall = uint64_t{1} << 20;    // allocated at once
constexpr uint64_t kFirst = 4 * kSmall;           // of a large one
constexpr uint64_t kMapUnit = uint64_t{1} << 16;  // a multiple of every kernel's page

uint64_t rounded_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

[[noreturn]] void no_memory(uint64_t bytes) {
  fail<ResourceError>("no memory for a body of {} bytes", bytes);
}

}  // namespace

std::shared_ptr<void> plain_memory(uint64_t bytes) {
  check<ResourceError>(bytes <= kMostBodyBytes, "no memory for a body of {} bytes", bytes);
  void* data = std::aligned_alloc(kAlignment, rounded_up(std::max<uint64_t>(bytes, 1), kAlignment));
  if (!data) no_memory(bytes);
  return std::shared_ptr<void>(data, std::free);
}

GrowingMemory::GrowingMemory(GrowingMemory&& other) noexcept
    : bytes_(other.bytes_),
      come_(other.come_),
      small_(std::move(other.small_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)) {}

GrowingMemory::~GrowingMemory() {
  if (mapped_) ::munmap(mapped_, capacity_);
}

void GrowingMemory::grow() {
  if (bytes_ <= kSmall) {
    small_ = plain_memory(bytes_);
    capacity_ = bytes_;
    return;
  }
  const uint64_t next = std::min(rounded_up(bytes_, kMapUnit), std::max(kFirst, 2 * capacity_));
  void* const at =
      mapped_ ? ::mremap(mapped_, capacity_, next, MREMAP_MAYMOVE)
              : ::mmap(nullptr, next, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) no_memory(bytes_);
  mapped_ = at;
  capacity_ = next;
}

std::span<char> GrowingMemory::room(uint64_t most) {
  const uint64_t wanted = std::min(most, bytes_ - come_);
  if (wanted == 0) return {};
  if (come_ == capacity_) grow();
  char* const base = static_cast<char*>(mapped_ ? mapped_ : small_.get());
  return {base + come_, std::min(wanted, capacity_ - come_)};
}

Body GrowingMemory::take() {
  if (bytes_ == 0) {
    static const char nothing = 0;
    return {std::shared_ptr<const void>(std::shared_ptr<void>(), &nothing), 0};
  }
  if (!mapped_) return {std::move(small_), bytes_};
  void* const data = std::exchange(mapped_, nullptr);
  const uint64_t mapped = std::exchange(capacity_, 0);
  return {std::shared_ptr<void>(data, [mapped](void* at) { ::munmap(at, mapped); }), bytes_};
}

}  // namespace trireme::channel::tcp
