// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>

#include "trireme/base/call_site.h"
#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/local/host.h"
#include "trireme/comm/local/ring_queue.h"
#include "trireme/comm/local/types.h"

// The engine inside one host: collectives between ranks that are threads or processes, over shared
// memory.
//
// A call publishes a digest and the place of its buffer in a slot, waits until every peer has
// published the same call, moves data straight between buffers, and says that it is through.
// Ordinary memory of processes goes through staging buffers in 256 KiB segments. The order of every
// reduction is fixed (reduce_kernels.h).
//
// One thread uses an Engine. Calls run in issue order. Posting never waits; progress is made by the
// caller: at post, at progress(), in wait(). Buffers must stay as they are until the call is
// complete, and no other call under way may write to them. A reduce_scatter may have its output in
// its own part of the input, an all_gather its input in its own part of the output.
//
// After an exception (Mismatch, PeerLost, Timeout, Aborted) the engine is finished: every later
// call throws it again, buffers of calls under way hold anything, and peers are told. UsageError
// leaves it as it was.
namespace trireme::local {

/// count: elements. all_reduce, broadcast, reduce: of the buffer `in` (== out). all_gather: of
/// `in`; out has size() times as many. reduce_scatter: of `out`; `in` has size() times as many.
/// send, recv: of `in`, `out`; root is the peer.
struct Call {
  OpKind op = OpKind::none;
  DType dtype = DType::u8;
  RedOp red = RedOp::sum;
  int root = 0;
  int tag = 0;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  CallSite site;
};

/// Names a call of one engine: collectives count from 1 in issue order; each direction of each pair
/// counts its own.
struct Ticket {
  enum Kind : uint8_t { none, collective, sending, receiving } kind = none;
  int peer = -1;
  uint64_t seq = 0;
};

class TRIREME_API Engine {
 public:
  Engine(std::unique_ptr<Host> host, Duration timeout);
  ~Engine();
  Engine(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Host& host() { return *host_; }
  const Host& host() const { return *host_; }
  Duration timeout() const { return timeout_; }

  Ticket post(const Call& call);
  bool is_complete(const Ticket& ticket) const;
  bool complete(const Ticket& ticket);  // makes progress first
  /// complete(), tried a few times; reads no clock.
  bool poll(const Ticket& ticket);
  void wait(const Ticket& ticket, Deadline deadline);
  /// Post and wait.
  void run(const Call& call);
  void progress();
  /// Throws again what finished this engine.
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Everything posted is complete.
  bool idle() const { return pending_.empty() && streams_pending_ == 0; }

  /// Leaves in order: peers that call on are told 'left after call N', not 'died'. Does not wait
  /// for them. With collectives under way it is a failure: peers must not touch buffers that may
  /// go.
  void leave();
  /// Leaves because of an error: peers get PeerLost with this text.
  void fail_with(const std::string& why, FailureKind kind = FailureKind::other);

  uint64_t calls() const { return next_seq_ - 1; }
  uint64_t bytes_read() const { return bytes_read_; }  // from peers' memory, by this rank

 private:
  enum class Path : uint8_t { unknown, nothing, small, direct, staged };
  struct Pending {
    Call call;
    uint64_t seq = 0;
    Path path = Path::unknown;
    bool waits_for_all = false;  // complete only when all are through: peers use this rank's buffer
    uint64_t base = 0;           // staged: number of the first segment
    uint64_t segments = 0, staged = 0, reduced = 0, copied = 0;
  };
  struct Stream {  // one direction of one pair
    std::deque<Call> calls;
    uint64_t posted = 0, complete = 0;
    size_t moved = 0;  // bytes of the front call that went through
    bool header_done = false;
    size_t peer_bytes = 0;
  };

  Control* self() { return self_; }
  void record(const Pending& p);
  bool publish(Pending& p);
  bool matched(Pending& p);
  void choose_path(Pending& p);
  bool advance(Pending& p);
  void run_small(Pending& p);
  void run_direct(Pending& p);
  bool run_staged(Pending& p);
  const unsigned char* small_input(const Pending& p, int rank);
  bool all(Flag Control::*flag, uint64_t at_least);
  Pending& pending(uint64_t seq) { return pending_[seq - complete_seq_ - 1]; }
  void step();
  void publish_flag(Flag& flag, uint64_t value);
  void ring_peers();
  void decide_spin();
  void finish_front();
  void advance_streams();
  bool advance_send(int peer, Stream& s);
  bool advance_recv(int peer, Stream& s);

  [[noreturn]] void raise_mismatch(const Pending& p, int peer);
  [[noreturn]] void raise_wrong_message(int peer, const std::string& sent, const Call& call);
  template <class E>
  [[noreturn]] void raise(const std::string& text, int peer, uint64_t seq, FailureKind kind);
  void look_at_peers(const Ticket& ticket);
  [[noreturn]] void raise_lost(int peer, const Ticket& ticket);
  std::string describe(const Call& call) const;
  std::string describe_record(int rank, uint64_t seq);
  std::string last_words(int rank);
  [[noreturn]] void raise_timeout(const Ticket& ticket, Duration waited);
  bool behind(int peer, const Ticket& ticket);
  bool arrived(int peer, uint64_t seq);
  uint32_t site_index(CallSite site);
  void validate(const Call& call) const;
  void enter_data();
  void leave_data();

  std::unique_ptr<Host> host_;
  const int rank_, size_;
  const Duration timeout_;
  Control* self_;
  Control* peer_[kMaxRanks] = {};
  const int pid_;  // a forked child holds this object too, and must not speak for the rank
  bool spin_decided_ = false;
  int spin_us_ = 0;
  bool owes_ring_ = false;  // a flag was set and nobody was woken for it yet
  bool threads_ = false;

  uint64_t next_seq_ = 1;
  // complete <= through (own data phase over) <= published (peers see the slot) < next
  uint64_t published_seq_ = 0, through_seq_ = 0, complete_seq_ = 0;
  RingQueue<Pending> pending_;  // those after complete_seq_
  uint64_t done_by_all_ = 0;    // a lower bound of every peer's `done`
  std::unique_ptr<Stream[]> sends_, recvs_;
  uint64_t streams_pending_ = 0;
  std::unordered_map<const char*, std::unordered_map<int, uint32_t>> sites_;
  CallSite last_site_{nullptr, 0};
  uint32_t last_site_index_ = 0;
  uint64_t bytes_read_ = 0;
  std::exception_ptr failure_;
  bool gone_ = false;
};

}  // namespace trireme::local
