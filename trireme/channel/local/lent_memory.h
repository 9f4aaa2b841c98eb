// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/process/process_mark.h"
#include "trireme/channel/local/block_book.h"
#include "trireme/channel/local/lane.h"
#include "trireme/channel/local/message_format.h"
#include "trireme/comm/local/arena.h"

namespace trireme::channel::local {

/// The windows of one direction, at its sender: blocks in them, and which of these the receiver
/// holds. Any thread. The windows stay mapped until the last block is gone, whatever became of the
/// channel.
class LentMemory : public std::enable_shared_from_this<LentMemory> {
 public:
  /// How the receiver learns of a window, or (-1) that one is gone. False: it cannot be told now.
  using Announce = std::function<bool(uint32_t window, int fd, uint64_t bytes)>;

  /// `most`: bytes of all windows together.
  LentMemory(uint64_t most, Announce announce);

  /// A block, aligned to a page; null: none within the bound, or the machine has no memory.
  std::shared_ptr<void> make(uint64_t bytes);
  /// Whether all of [p, p + bytes) is in one of the windows.
  bool has(const void* p, uint64_t bytes) const;
  /// Keeps `data`, which is in a window, until the receiver returns it. Nothing: it holds kMostLent
  /// already.
  std::optional<LentPlace> lend(std::shared_ptr<const void> data, uint64_t bytes);
  /// Lends all bodies of at least `from` bytes, if each of them is in a window and there are
  /// numbers for all; else none, and false. `places`: a place or nothing for each body.
  bool lend_all(const std::vector<Body>& bodies, uint64_t from,
                std::vector<std::optional<LentPlace>>& places);
  /// Lets go of what the receiver has returned. Corrupt: it returns what it does not hold.
  void collect(Lane& lane);
  /// There is no receiver any more: everything that was lent is let go, and make() gives null.
  void end();

 private:
  struct Ours {
    uint32_t number;
    ::trireme::local::Window window;
  };
  bool grow(uint64_t bytes, std::unique_lock<std::mutex>& lock);
  std::optional<LentPlace> place_of(const void* p, uint64_t bytes) const;
  void give(const Block& block);

  const ProcessMark mark_;
  mutable std::mutex mutex_;
  Announce announce_;                  // empty: the channel is over
  std::map<uintptr_t, Ours> windows_;  // by where they begin
  std::map<uint32_t, uintptr_t> begins_;
  BlockBook book_;
  uint32_t next_window_ = 0;
  Clock::time_point refused_until_{};              // asking the system again and again is slow
  std::vector<std::shared_ptr<const void>> lent_;  // by number of the loan
  std::vector<uint32_t> free_numbers_;
  std::atomic<uint64_t> collected_{0};  // of Lane::returned; by mutex_
};

}  // namespace trireme::channel::local
