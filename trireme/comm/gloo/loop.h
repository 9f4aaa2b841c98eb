// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"

namespace gloo::transport {
class Device;
}

namespace trireme::detail {

/// The thread on which a Gloo device moves bytes, for running work there. That thread only tries a
/// connection's lock and spins while another thread holds it, which costs the holder a time slice
/// if both share a CPU; work on the thread itself avoids that. Callable from any other thread.
class GlooLoop {
 public:
  /// Returns null if this Gloo's thread does not accept work.
  static std::shared_ptr<GlooLoop> of(const std::shared_ptr<::gloo::transport::Device>& device);
  ~GlooLoop();
  GlooLoop(const GlooLoop&) = delete;

  /// Runs `work` soon, in order. It must not throw, and must not wait for a thread that may wait
  /// for this one, such as one that is closing a connection.
  void run(const void* owner, std::function<void()> work);
  /// Runs `work` at `when`.
  void run_at(Clock::time_point when, const void* owner, std::function<void()> work);
  /// Removes the owner's work; none of it runs after this returns.
  void forget(const void* owner);

 private:
  struct Bell;
  struct Item {
    const void* owner;
    std::function<void()> work;
  };
  explicit GlooLoop(std::shared_ptr<::gloo::transport::Device> device);
  void drain();
  void set_timer();

  const std::shared_ptr<::gloo::transport::Device> device_;
  UniqueFd bell_fd_, timer_fd_;
  std::unique_ptr<Bell> bell_, timer_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Item> items_;
  std::multimap<Clock::time_point, Item> later_;
  const void* running_ = nullptr;  // the owner of the running work
};

}  // namespace trireme::detail
