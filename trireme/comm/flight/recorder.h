// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "trireme/base/call_site.h"
#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/flight/ring.h"

namespace trireme::flight {

/// Whether the time-stamp counter runs at one rate on all cores, even while they sleep.
TRIREME_API bool ticks_are_time();

/// The fields that ranks must agree on in a collective, and those of a send or recv.
struct CallWords {
  Collective op = Collective::none;
  DType dtype = DType::u8;
  ReduceOp red = ReduceOp::sum;
  int root = 0;  // or the peer
  int tag = 0;
  uint64_t count = 0;
};

/// Writes a ring, from the rank's own thread. It takes some tens of nanoseconds per call and
/// allocates only for a new call site.
class TRIREME_API Recorder {
 public:
  /// The ring's memory must be zero.
  explicit Recorder(Ring* ring);

  /// Returns the index of a call site, or kSites if there is no room for its name.
  uint32_t site(CallSite at) {
    if (at.file == last_site_.file && at.line == last_site_.line) return last_index_;
    return find_site(at);
  }
  /// Records collective number `seq`.
  void call(uint64_t seq, const CallWords& words, CallSite at) {
    write(ring_->calls[seq % kRecords], seq, words, site(at));
  }
  void matched(uint64_t seq) {
    ring_->calls[seq % kRecords].state.store(CallState::matched, std::memory_order_relaxed);
  }
  void done(uint64_t seq) { finish(ring_->calls[seq % kRecords], seq); }

  /// Records a send or recv, which may already be done; returns its number.
  uint64_t pair(const CallWords& words, CallSite at, bool done = false) {
    const uint64_t n = ++pairs_;
    write(ring_->pairs[n % kRecords], n, words, site(at), done);
    ring_->pair_count.store(n, std::memory_order_release);
    return n;
  }
  void pair_matched(uint64_t n) {
    Record& r = ring_->pairs[n % kRecords];
    if (r.seq.load(std::memory_order_relaxed) == n)
      r.state.store(CallState::matched, std::memory_order_relaxed);
  }
  void pair_done(uint64_t n) { finish(ring_->pairs[n % kRecords], n); }
  /// Sets the peer of a recv from any source, once it is known.
  void pair_peer(uint64_t n, int peer) {
    Record& r = ring_->pairs[n % kRecords];
    if (r.seq.load(std::memory_order_relaxed) == n) r.root.store(peer, std::memory_order_relaxed);
  }

  uint64_t now() const { return ticks_ ? ticks() : static_cast<uint64_t>(now_ns()); }
  const Ring& ring() const { return *ring_; }

 private:
  uint32_t find_site(CallSite at);
  void write(Record& r, uint64_t seq, const CallWords& w, uint32_t site, bool done = false) {
    constexpr auto release = std::memory_order_release;
    const uint64_t at = now();
    r.seq.store(0, std::memory_order_relaxed);
    r.count.store(w.count, release);
    r.posted_ticks.store(at, release);
    r.done_ticks.store(done ? at : 0, release);
    r.op.store(w.op, release);
    r.dtype.store(w.dtype, release);
    r.red.store(w.red, release);
    r.root.store(w.root, release);
    r.tag.store(w.tag, release);
    r.state.store(done ? CallState::done : CallState::posted, release);
    r.site.store(site, release);
    r.seq.store(seq, release);
  }
  void finish(Record& r, uint64_t seq) {
    if (r.seq.load(std::memory_order_relaxed) != seq)
      return;  // overwritten by a later call meanwhile
    r.done_ticks.store(now(), std::memory_order_relaxed);
    r.state.store(CallState::done, std::memory_order_relaxed);
  }

  Ring* ring_;
  const bool ticks_ = ticks_are_time();
  uint64_t pairs_ = 0;
  CallSite last_site_{nullptr, 0};
  uint32_t last_index_ = 0;
  std::unordered_map<const char*, std::unordered_map<int, uint32_t>> sites_;
};

}  // namespace trireme::flight
