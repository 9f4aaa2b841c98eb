// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/queue.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "tests/support/pretend_device/delays.h"

namespace trireme::pretend {

bool Ticket::done() const { return !queue || queue->done(number); }

void Ticket::wait() const {
  if (queue) queue->wait(number);
}

Ticket Queue::enqueue(Work work) { return push(std::move(work), true); }

void Queue::enqueue_promptly(const Work& work) {
  {
    std::lock_guard lock(mutex_);
    if (done(newest_)) {
      work();  // under the lock: nothing overtakes it
      return;
    }
  }
  push(work, false);
}

void Queue::wait_for(Ticket other) {
  if (other.queue != this && !other.done()) push([other] { other.wait(); }, false);
}

Ticket Queue::newest() const {
  std::lock_guard lock(mutex_);
  return {const_cast<Queue*>(this), newest_};
}

void Queue::wait(uint64_t number) {
  if (done(number)) return;
  std::unique_lock lock(mutex_);
  wanted_ = std::max(wanted_, number);
  changed_.notify_all();
  changed_.wait(lock, [&] { return done(number); });
}

void Queue::reseed(uint64_t seed) {
  drain();
  std::lock_guard lock(mutex_);
  seed_ = seed;
  draws_ = 0;
}

Ticket Queue::push(Work work, bool late) {
  std::lock_guard lock(mutex_);
  if (!has_thread_) std::thread([this] { work_for_ever(); }).detach();
  has_thread_ = true;
  entries_.push_back({std::move(work), late});
  changed_.notify_all();
  return {this, ++newest_};
}

void Queue::work_for_ever() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !entries_.empty(); });
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    if (entry.late) be_late(lock);
    lock.unlock();
    entry.work();
    entry.work = nullptr;  // what it holds goes before anybody hears that it is done
    lock.lock();
    done_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
  }
}

void Queue::be_late(std::unique_lock<std::mutex>& lock) {
  const Delay delay = delay_of(seed_, device_, stream_, draws_++);
  const uint64_t mine = done_.load() + 1;
  if (delay.until_waited_for) {
    changed_.wait_for(lock, delay.at_most, [&] { return wanted_ >= mine; });
  } else if (delay.at_most.count() > 0) {
    lock.unlock();
    std::this_thread::sleep_for(delay.at_most);
    lock.lock();
  }
}

}  // namespace trireme::pretend
