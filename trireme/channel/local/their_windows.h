// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "trireme/base/process/process_mark.h"
#include "trireme/channel/local/lane.h"
#include "trireme/channel/local/message_format.h"
#include "trireme/comm/local/arena.h"

namespace trireme::channel::local {

/// Where a receiver says which loans it has let go. Any thread; in a forked child nothing is said,
/// since the parent still holds them.
class Returns {
 public:
  /// `lane`: of the sender that lent them; stays mapped while this lives.
  explicit Returns(std::shared_ptr<::trireme::local::Window> lane) : memory_(std::move(lane)) {}
  Lane* lane() const { return reinterpret_cast<Lane*>(memory_->base()); }
  void give_back(uint32_t number);

 private:
  const ProcessMark mark_;
  std::shared_ptr<::trireme::local::Window> memory_;
  std::mutex mutex_;
  uint64_t given_ = 0;
};

/// The windows of a sender as its receiver has mapped them. One thread at a time; what lend() gives
/// may go on any thread, and keeps its window mapped whatever became of the channel.
class TheirWindows {
 public:
  static constexpr size_t kMostWindows = 4096;

  explicit TheirWindows(std::shared_ptr<Returns> returns) : returns_(std::move(returns)) {}
  /// Corrupt: the window's number is taken, or there are too many.
  void add(uint32_t window, ::trireme::local::Window memory);
  void drop(uint32_t window) { windows_.erase(window); }
  bool has(uint32_t window) const { return windows_.count(window) > 0; }
  /// Memory of the sender's, returned to it when the last copy is gone. Corrupt: it does not lie in
  /// a window.
  std::shared_ptr<const void> lend(const LentPlace& place, uint64_t bytes);

 private:
  std::shared_ptr<Returns> returns_;
  std::map<uint32_t, std::shared_ptr<::trireme::local::Window>> windows_;
};

}  // namespace trireme::channel::local
