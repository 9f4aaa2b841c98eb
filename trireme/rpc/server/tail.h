// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace trireme::rpc::server {

/// A thread for what no handler's thread should wait for: checkpoints, and steps that complete
/// because a worker died.
class Tail {
 public:
  Tail() : thread_([this] { run(); }) {}
  ~Tail() { end(); }
  Tail(const Tail&) = delete;

  /// Tasks run in order and do not throw.
  void post(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    if (ending_) return;
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }
  /// What was posted has run then; later tasks will not.
  void end() {
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      ending_ = true;
      changed_.notify_one();
    }
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::rpc::server
