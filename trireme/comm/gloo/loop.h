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

/// The thread by which a device of Gloo moves bytes, to run things there. It only tries a
/// connection's lock and spins while another thread has it, which costs that one a slice of the CPU
/// where both share one; what is posted on the thread itself has the connection to itself.
/// Threads: any but that one.
class GlooLoop {
 public:
  /// Null where this Gloo's thread takes no work.
  static std::shared_ptr<GlooLoop> of(const std::shared_ptr<::gloo::transport::Device>& device);
  ~GlooLoop();
  GlooLoop(const GlooLoop&) = delete;

  /// Soon, one after the other. `work` must neither throw nor wait for anybody who may wait for
  /// this thread, as those do who close a connection.
  void run(const void* owner, std::function<void()> work);
  /// Once `when` has come.
  void run_at(Clock::time_point when, const void* owner, std::function<void()> work);
  /// None of the owner's runs any more.
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
  const void* running_ = nullptr;  // whose
};

}  // namespace trireme::detail
