// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::rpc::detail {

/// A callable of at most kBytes, kept without an allocation.
class SmallTask {
 public:
  static constexpr size_t kBytes = 48;

  SmallTask() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, SmallTask>) SmallTask(F&& f) {  // NOLINT
    using Kept = std::decay_t<F>;
    static_assert(sizeof(Kept) <= kBytes && alignof(Kept) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Kept>);
    new (bytes_) Kept(std::forward<F>(f));
    does_ = [](Do what, void* at, void* to) {
      Kept* const kept = static_cast<Kept*>(at);
      if (what == Do::call) return static_cast<void>((*kept)());
      if (what == Do::move) new (to) Kept(std::move(*kept));
      kept->~Kept();
    };
  }
  SmallTask(SmallTask&& other) noexcept { take(other); }
  SmallTask& operator=(SmallTask&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  ~SmallTask() { clear(); }

  explicit operator bool() const { return does_ != nullptr; }
  void operator()() { does_(Do::call, bytes_, nullptr); }

 private:
  enum class Do : uint8_t { call, move, destroy };

  void clear() {
    if (does_) std::exchange(does_, nullptr)(Do::destroy, bytes_, nullptr);
  }
  void take(SmallTask& other) {
    if (!other.does_) return;
    other.does_(Do::move, other.bytes_, bytes_);
    does_ = std::exchange(other.does_, nullptr);
  }

  alignas(std::max_align_t) std::byte bytes_[kBytes];
  void (*does_)(Do, void*, void*) = nullptr;
};

/// What is to be done at certain times, by whoever looks. Threads: any. Calls of one patience come
/// in the order of their deadlines, so they stand in queues, each in order; what fits into none of
/// them stands in a map.
class Deadlines {
 public:
  struct Place {
    Clock::time_point at{};
    uint64_t number = 0;  // 0: nowhere
    size_t queue = 0;     // kQueues: the map
  };

  Place add(Clock::time_point at, SmallTask task) {
    std::lock_guard lock(mutex_);
    const uint64_t number = ++count_;
    for (size_t i = 0; i < kQueues; ++i) {
      Queue& queue = queues_[i];
      if (!queue.entries.empty() && queue.entries.back().at > at) continue;
      queue.entries.push_back({at, number, std::move(task)});
      return {at, number, i};
    }
    others_.emplace(std::pair{at, number}, std::move(task));
    return {at, number, kQueues};
  }
  /// It may have been done, or be under way.
  void remove(const Place& place) {
    if (place.number == 0) return;
    SmallTask gone;  // destroyed outside of the lock
    std::lock_guard lock(mutex_);
    if (place.queue == kQueues) {
      const auto found = others_.find({place.at, place.number});
      if (found == others_.end()) return;
      gone = std::move(found->second);
      others_.erase(found);
      return;
    }
    Queue& queue = queues_[place.queue];
    const auto found =
        std::lower_bound(queue.entries.begin(), queue.entries.end(), place.number,
                         [](const Entry& e, uint64_t number) { return e.number < number; });
    if (found == queue.entries.end() || found->number != place.number || !found->task) return;
    gone = std::move(found->task);
    ++queue.removed;
    tidy(queue);
  }
  /// Does what is due, on this thread. When the next is.
  Clock::time_point look(Clock::time_point now) {
    std::vector<SmallTask> due;
    Clock::time_point next = Clock::time_point::max();
    {
      std::lock_guard lock(mutex_);
      for (Queue& queue : queues_) {
        while (!queue.entries.empty() && queue.entries.front().at <= now) {
          if (queue.entries.front().task)
            due.push_back(std::move(queue.entries.front().task));
          else
            --queue.removed;
          queue.entries.pop_front();
        }
        tidy(queue);
        if (!queue.entries.empty()) next = std::min(next, queue.entries.front().at);
      }
      while (!others_.empty() && others_.begin()->first.first <= now)
        due.push_back(std::move(others_.extract(others_.begin()).mapped()));
      if (!others_.empty()) next = std::min(next, others_.begin()->first.first);
    }
    for (SmallTask& task : due) task();
    return next;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    size_t sum = others_.size();
    for (const Queue& queue : queues_) sum += queue.entries.size() - queue.removed;
    return sum;
  }
  /// Places in memory, those of what was removed among them.
  size_t places() const {
    std::lock_guard lock(mutex_);
    size_t sum = others_.size();
    for (const Queue& queue : queues_) sum += queue.entries.size();
    return sum;
  }

 private:
  static constexpr size_t kQueues = 4;
  static constexpr size_t kFewRemoved = 64;

  struct Entry {
    Clock::time_point at;
    uint64_t number;
    SmallTask task;  // none: it was removed
  };
  struct Queue {
    std::deque<Entry> entries;
    size_t removed = 0;
  };

  // Nothing removed at either end, and at most as many removed as not, and a few.
  static void tidy(Queue& queue) {
    auto& entries = queue.entries;
    for (; !entries.empty() && !entries.front().task; --queue.removed) entries.pop_front();
    for (; !entries.empty() && !entries.back().task; --queue.removed) entries.pop_back();
    if (queue.removed <= entries.size() / 2 + kFewRemoved) return;
    std::erase_if(entries, [](const Entry& entry) { return !entry.task; });
    queue.removed = 0;
  }

  mutable std::mutex mutex_;
  uint64_t count_ = 0;
  std::array<Queue, kQueues> queues_;
  std::map<std::pair<Clock::time_point, uint64_t>, SmallTask> others_;
};

}  // namespace trireme::rpc::detail
