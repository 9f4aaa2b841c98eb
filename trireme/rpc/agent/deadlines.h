// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::rpc::detail {

inline Clock::time_point when(Deadline deadline) {
  return deadline.is_never() ? Clock::time_point::max() : Clock::now() + deadline.remaining();
}

/// What is to be done at certain times, by whoever looks. Threads: any.
class Deadlines {
 public:
  using Place = std::pair<Clock::time_point, uint64_t>;

  Place add(Clock::time_point at, std::function<void()> task) {
    std::lock_guard lock(mutex_);
    const Place place{at, ++count_};
    tasks_.emplace(place, std::move(task));
    return place;
  }
  /// It may have been done, or be under way.
  void remove(const Place& place) {
    std::lock_guard lock(mutex_);
    tasks_.erase(place);
  }
  /// Does what is due, on this thread. When the next is.
  Clock::time_point look(Clock::time_point now) {
    std::vector<std::function<void()>> due;
    const auto next = [&] {
      std::lock_guard lock(mutex_);
      while (!tasks_.empty() && tasks_.begin()->first.first <= now)
        due.push_back(std::move(tasks_.extract(tasks_.begin()).mapped()));
      return tasks_.empty() ? Clock::time_point::max() : tasks_.begin()->first.first;
    }();
    for (auto& task : due) task();
    return next;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return tasks_.size();
  }

 private:
  mutable std::mutex mutex_;
  uint64_t count_ = 0;
  std::map<Place, std::function<void()>> tasks_;
};

}  // namespace trireme::rpc::detail
