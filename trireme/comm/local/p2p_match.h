// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/comm/local/ring_queue.h"

// The logic of point-to-point messages, as pure functions of integers: which message goes to which
// recv, which calls are complete, where a message is in a ring of bytes, and in which blocks a
// large one is copied.
namespace trireme::local {

/// MPI's rule: a message goes to the oldest posted recv of its source (or of any source) and tag,
/// and a recv takes the matching message that arrived first. Recvs and messages are numbered by the
/// caller.
class MatchBook {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int kAny = -1;

  explicit MatchBook(int sources)
      : recvs_(static_cast<size_t>(sources)), messages_(static_cast<size_t>(sources)) {}

  /// Returns the kept message that this recv takes, or kNone if the recv must wait.
  uint32_t post(int source, int tag, uint32_t recv) {
    RingQueue<Entry>* from = nullptr;
    size_t at = 0;
    auto look = [&](RingQueue<Entry>& kept) {
      const size_t i = first(kept, tag);
      if (i < kept.size() && (!from || kept[i].order < (*from)[at].order)) from = &kept, at = i;
    };
    if (source != kAny)
      look(messages_[static_cast<size_t>(source)]);
    else
      for (auto& kept : messages_) look(kept);
    if (from) return take(*from, at);
    (source == kAny ? any_ : recvs_[static_cast<size_t>(source)]).push({tag, recv, ++order_});
    return kNone;
  }

  /// Returns the recv that takes an arriving message, or kNone: then call keep().
  uint32_t arrive(int source, int tag) {
    auto& own = recvs_[static_cast<size_t>(source)];
    const size_t i = first(own, tag), j = first(any_, tag);
    const bool has_own = i < own.size(), has_any = j < any_.size();
    if (has_own && !(has_any && any_[j].order < own[i].order)) return take(own, i);
    return has_any ? take(any_, j) : kNone;
  }
  void keep(int source, int tag, uint32_t message) {
    messages_[static_cast<size_t>(source)].push({tag, message, ++order_});
  }

 private:
  struct Entry {
    int tag = 0;
    uint32_t id = 0;
    uint64_t order = 0;
  };
  static size_t first(RingQueue<Entry>& queue, int tag) {
    size_t i = 0;
    while (i < queue.size() && queue[i].tag != tag) ++i;
    return i;
  }
  static uint32_t take(RingQueue<Entry>& queue, size_t i) {
    const uint32_t id = queue[i].id;
    queue.erase(i);
    return id;
  }

  std::vector<RingQueue<Entry>> recvs_, messages_;  // by source
  RingQueue<Entry> any_;
  uint64_t order_ = 0;
};

/// Numbers 1, 2, … that are issued in order and completed in any order. It knows which are done
/// without storing each of them.
class DoneNumbers {
 public:
  uint64_t issue() { return ++issued_; }
  bool is_done(uint64_t n) const {
    return n <= below_ || (n - below_ <= later_.size() && later_[n - below_ - 1]);
  }
  void done(uint64_t n) {
    if (n == below_ + 1 && later_.empty()) {
      ++below_;
      return;
    }
    while (later_.size() < n - below_) later_.push(0);
    later_[n - below_ - 1] = 1;
    while (!later_.empty() && later_.front()) later_.pop(), ++below_;
  }

 private:
  uint64_t issued_ = 0, below_ = 0;  // all up to below_ are done
  RingQueue<uint8_t> later_;         // those after it, up to the last that is done
};

/// The sender's view of a ring of bytes. Positions only grow; no piece wraps around.
class RingSpace {
 public:
  explicit RingSpace(size_t capacity) : capacity_(capacity) {}
  /// Reserves n bytes (at most half of the ring: such a piece always fits into an empty ring).
  bool reserve(size_t n, uint64_t& at) {
    n = (n + 63) / 64 * 64;
    const size_t place = head_ % capacity_, skip = place + n > capacity_ ? capacity_ - place : 0;
    if (head_ + skip + n - tail_ > capacity_) return false;
    at = head_ + skip;
    head_ = at + n;
    return true;
  }
  uint64_t head() const { return head_; }
  void release_up_to(uint64_t position) { tail_ = position; }

 private:
  size_t capacity_;
  uint64_t head_ = 0, tail_ = 0;
};

/// A large message in blocks that either end may copy.
struct Blocks {
  explicit Blocks(size_t bytes)
      : bytes(bytes),
        each(std::clamp((bytes / 8 + 4095) / 4096 * 4096, size_t{8} << 10, size_t{256} << 10)) {}
  uint64_t count() const { return (bytes + each - 1) / each; }
  size_t begin(uint64_t i) const { return static_cast<size_t>(i) * each; }
  size_t size(uint64_t i) const { return std::min(each, bytes - begin(i)); }

  size_t bytes, each;
};

}  // namespace trireme::local
