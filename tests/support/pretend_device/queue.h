// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace trireme::pretend {

class Queue;

/// All work of a stream up to a point.
struct Ticket {
  Queue* queue = nullptr;
  uint64_t number = 0;

  bool done() const;
  void wait() const;
  bool operator==(const Ticket&) const = default;
};

/// What is behind a stream: work in order, done late by a thread of its own. How late (delays.h) is
/// drawn from the seed, the stream, and the number of draws since the seed was set. Any thread may
/// call. Queues live as long as the process, and so do their threads.
class Queue {
 public:
  using Work = std::function<void()>;

  Queue(int device, int64_t stream) : device_(device), stream_(stream) {}
  Queue(const Queue&) = delete;

  int device() const { return device_; }
  int64_t stream() const { return stream_; }

  /// Does `work` after all that was enqueued before, and after a delay.
  Ticket enqueue(Work work);
  /// Without a delay: now, by the caller, if nothing is under way.
  void enqueue_promptly(const Work& work);
  /// What is enqueued from here on waits for another stream. The caller does not.
  void wait_for(Ticket other);

  Ticket newest() const;
  bool done(uint64_t number) const { return done_.load(std::memory_order_acquire) >= number; }
  /// Blocks the caller.
  void wait(uint64_t number);
  void drain() { wait(newest().number); }

  /// 0: no delays. Of an idle queue.
  void reseed(uint64_t seed);

 private:
  struct Entry {
    Work work;
    bool late;
  };
  Ticket push(Work work, bool late);
  void work_for_ever();
  void be_late(std::unique_lock<std::mutex>& lock);

  const int device_;
  const int64_t stream_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool has_thread_ = false;
  uint64_t newest_ = 0, wanted_ = 0;  // the last number that anybody waits for
  uint64_t seed_ = 0, draws_ = 0;
  std::atomic<uint64_t> done_{0};
};

}  // namespace trireme::pretend
