// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/lent_memory.h"

#include <utility>

#include "trireme/base/check.h"

namespace trireme::channel::local {

LentMemory::LentMemory(uint64_t most, Announce announce)
    : announce_(std::move(announce)), book_(most), lent_(kMostLent) {
  free_numbers_.reserve(kMostLent);
  for (uint32_t n = kMostLent; n > 0; --n) free_numbers_.push_back(n - 1);
}

std::shared_ptr<void> LentMemory::make(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  if (!announce_) return nullptr;
  std::optional<Block> block = book_.take(bytes);
  if (!block && grow(bytes, lock)) block = book_.take(bytes);
  if (!block) return nullptr;
  void* p = reinterpret_cast<void*>(begins_.at(block->window) + block->offset);
  return {p, [self = shared_from_this(), block = *block](void*) { self->give(block); }};
}

/// The system fills a new window without the lock, so that others go on with what is there.
bool LentMemory::grow(uint64_t bytes, std::unique_lock<std::mutex>& lock) {
  const std::optional<BlockBook::Growth> growth = book_.growth_for(bytes);
  if (!growth || Clock::now() < refused_until_) return false;
  for (const uint32_t dropped : growth->dropped) {
    if (!announce_(dropped, -1, 0)) return false;
    book_.drop(dropped);
    const auto begin = begins_.find(dropped);
    windows_.erase(begin->second);
    begins_.erase(begin);
  }
  book_.begin(*growth);
  UniqueFd fd;
  ::trireme::local::Window window;
  lock.unlock();
  try {
    window = ::trireme::local::Window::create(growth->bytes, fd);
  } catch (const ResourceError&) {  // bodies travel through the ring meanwhile
  }
  lock.lock();
  if (!window.base()) refused_until_ = Clock::now() + std::chrono::seconds(1);
  if (!window.base() || !announce_ || !announce_(next_window_, fd.get(), growth->bytes)) {
    book_.give_up(*growth);
    return false;
  }
  const auto begin = reinterpret_cast<uintptr_t>(window.base());
  book_.add(next_window_, *growth);
  begins_[next_window_] = begin;
  windows_.emplace(begin, Ours{next_window_++, std::move(window)});
  return true;
}

void LentMemory::give(const Block& block) {
  if (!mark_.is_here()) return;  // in a forked child: the block is still its parent's
  std::lock_guard lock(mutex_);
  book_.give(block);
}

std::optional<LentPlace> LentMemory::place_of(const void* p, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto it = windows_.upper_bound(at);
  if (it == windows_.begin()) return std::nullopt;
  --it;
  const uint64_t offset = at - it->first, whole = it->second.window.bytes();
  if (offset > whole || bytes > whole - offset) return std::nullopt;
  return LentPlace{it->second.number, 0, offset};
}

bool LentMemory::has(const void* p, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  return place_of(p, bytes).has_value();
}

std::optional<LentPlace> LentMemory::lend(std::shared_ptr<const void> data, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  std::optional<LentPlace> place = place_of(data.get(), bytes);
  if (!place || free_numbers_.empty() || !announce_) return std::nullopt;
  place->number = free_numbers_.back();
  free_numbers_.pop_back();
  lent_[place->number] = std::move(data);
  return place;
}

bool LentMemory::lend_all(const std::vector<Body>& bodies, uint64_t from,
                          std::vector<std::optional<LentPlace>>& places) {
  std::lock_guard lock(mutex_);
  places.assign(bodies.size(), std::nullopt);
  size_t large = 0;
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (bodies[i].bytes < from) continue;
    places[i] = place_of(bodies[i].data.get(), bodies[i].bytes);
    if (!places[i]) return false;
    ++large;
  }
  if (large > free_numbers_.size() || !announce_) return false;
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (!places[i]) continue;
    places[i]->number = free_numbers_.back();
    free_numbers_.pop_back();
    lent_[places[i]->number] = bodies[i].data;
  }
  return true;
}

void LentMemory::collect(Lane& lane) {
  if (lane.returned.load(std::memory_order_relaxed) == collected_.load(std::memory_order_relaxed))
    return;
  // What goes last is let go without the lock: the end of a block gives it back.
  std::vector<std::shared_ptr<const void>> let_go;
  std::lock_guard lock(mutex_);
  const uint64_t returned = lane.returned.load(std::memory_order_acquire);
  check<Corrupt>(returned >= collected_ && returned - collected_ <= kMostLent,
                 "it returned {} blocks at once", returned - collected_);
  for (uint64_t next = collected_; next < returned; ++next) {
    const uint32_t number = lane.returns[next % kMostLent].load(std::memory_order_relaxed);
    check<Corrupt>(number < kMostLent && lent_[number] != nullptr,
                   "it returned block {}, which it does not hold", number);
    let_go.push_back(std::move(lent_[number]));
    lent_[number] = nullptr;
    free_numbers_.push_back(number);
    collected_ = next + 1;
  }
}

void LentMemory::end() {
  std::vector<std::shared_ptr<const void>> let_go;
  Announce announce;
  std::lock_guard lock(mutex_);
  let_go = std::exchange(lent_, std::vector<std::shared_ptr<const void>>(kMostLent));
  announce = std::exchange(announce_, {});
}

}  // namespace trireme::channel::local
