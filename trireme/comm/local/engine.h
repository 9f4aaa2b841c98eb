// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/call_site.h"
#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/flight/recorder.h"
#include "trireme/comm/local/host/host.h"
#include "trireme/comm/local/ring_queue.h"
#include "trireme/comm/local/types.h"

// The engine for one host: collectives between ranks that are threads or processes, over shared
// memory.
//
// A call publishes a digest and the place of its buffer in a slot, waits until every peer has
// published the same call, moves data directly between buffers, and publishes that it is done.
// Ordinary memory of processes goes through staging buffers in segments. The order of every
// reduction is fixed (reduce_kernels.h).
//
// One thread uses an Engine and those that share its root. Calls run in issue order. Posting never
// waits; the caller makes progress: at post, at progress(), in wait(). Buffers must not change
// until the call is complete, and no other call in flight may write to them. The output of a
// reduce_scatter may be its own part of the input, and the input of an all_gather its own part of
// the output.
//
// After an exception (Mismatch, PeerLost, Timeout, Aborted) the engine has failed: every later call
// throws it again, buffers of calls in flight have undefined contents, and peers are notified.
// UsageError leaves the engine unchanged.
namespace trireme::local {

/// count: elements. all_reduce, broadcast, reduce: of the buffer `in` (== out). all_gather: of
/// `in`; out has size() times as many. reduce_scatter: of `out`; `in` has size() times as many.
/// send, recv: of `in`, `out`; root is the peer, for a recv also kAnySource. A message goes to the
/// oldest recv of its source and tag; messages of one pair and tag stay in order, others may
/// overtake. gather: of `in`; out, on the root, has size() times as many. scatter: of `out`; in, on
/// the root, has size() times as many. all_to_all: send_counts[q] elements for rank q follow those
/// for q-1 in `in`, and recv_counts[q] from it are placed in `out` likewise; both arrays have
/// size() values and are copied when posting; count is unused.
constexpr int kAnySource = -1;
struct Call {
  Collective op = Collective::none;
  Collective called = Collective::none;  // the call that the program made; none: op
  DType dtype = DType::u8;
  ReduceOp red = ReduceOp::sum;
  int root = 0;
  int tag = 0;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  CallSite site;
  const uint64_t* send_counts = nullptr;
  const uint64_t* recv_counts = nullptr;

  Collective named() const { return called == Collective::none ? op : called; }
};

/// Identifies a call of one engine: collectives count from 1 in issue order; each direction of each
/// pair has its own count, and so have recvs from any source. Collectives complete in order, the
/// others in any order.
struct Ticket {
  enum Kind : uint8_t { none, collective, sending, receiving } kind = none;
  int peer = -1;
  uint64_t seq = 0;
};

class TRIREME_API Engine {
 public:
  /// root: the engine of a group in which this group's ranks are root_ranks; it must outlive this
  /// one. All engines of one rank make progress together, whichever of them it waits in, and share
  /// the root's doorbells.
  Engine(std::unique_ptr<Host> host, Duration timeout, Engine* root = nullptr,
         const std::vector<int>& root_ranks = {}, const std::string& name = "world");
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
  /// As complete(), for callers that poll and never wait: throws if a peer is gone.
  bool test(const Ticket& ticket);
  /// The rank that sent the message of a complete recv; for any source, until 65,536 more are
  /// complete.
  int source(const Ticket& ticket) const;
  /// As complete(), tried a few times; does not read the clock.
  bool poll(const Ticket& ticket);
  void wait(const Ticket& ticket, Deadline deadline);
  /// Posts the call and waits for it.
  void run(const Call& call);
  void progress();
  /// Sets a function that makes progress elsewhere while this rank waits here; it returns whether
  /// anything is in flight.
  void also_move(std::function<bool()> others) { others_ = std::move(others); }
  /// Sets a function that runs a few times a second on a thread that has waited here for a second;
  /// if it throws, the wait ends with that error. It replaces this engine's own reports of late
  /// ranks.
  void on_stall(std::function<void()> look) { look_ = std::move(look); }
  /// Throws the error that ended this engine, if any.
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Whether everything posted is complete.
  bool idle() const;

  /// Leaves in order, without waiting for peers: those that go on calling get 'left after call N'
  /// instead of 'died'. With collectives in flight it is a failure, because peers must not access
  /// buffers that may be freed.
  void leave();
  /// Leaves because of an error: peers throw PeerLost with this text.
  void fail_with(const std::string& why, FailureKind kind = FailureKind::other);

  uint64_t calls() const { return next_seq_ - 1; }
  uint64_t bytes_read() const { return bytes_read_; }  // from peers' memory, by this rank

 private:
  enum class Path : uint8_t { unknown, nothing, small, direct, staged };
  struct Pending {
    Call call;
    uint64_t seq = 0;
    Path path = Path::unknown;
    uint64_t waits_for = 0;  // bit q: rank q uses this rank's buffer; complete when it is done
    bool by_root = false;    // direct gather, scatter: the root copies everything
    uint64_t base = 0;       // staged: number of the first segment
    uint64_t segments = 0, staged = 0, reduced = 0, copied = 0;
    uint64_t each = 0;                   // all_to_all: elements of every part, or kUneven:
    std::unique_ptr<uint64_t[]> counts;  // size() sent, size() received

    void begin(const Call& c, uint64_t number) {
      call = c;
      seq = number;
      path = Path::unknown;
      waits_for = base = segments = staged = reduced = copied = each = 0;
      by_root = false;
      counts.reset();
    }
  };
  class Pairs;  // point to point: p2p.h

  bool has_others() const { return engines_of_rank_->size() > 1 || others_; }
  bool progress_others();
  void record(const Pending& p);
  uint64_t record_pair(const Call& call, bool done);
  bool publish(Pending& p);
  bool matched(Pending& p);
  bool arrived(const Pending& p) const;
  void look_for_slots();
  void choose_path(Pending& p);
  bool advance(Pending& p);
  void publish_data(const Pending& p, Slot& slot);
  void run_small(Pending& p);
  void run_direct(Pending& p);
  bool run_staged(Pending& p);
  const unsigned char* small_input(const Pending& p, int rank);
  void keep_counts(Pending& p);
  void publish_exchange(const Pending& p, Slot& slot);
  void check_exchange(const Pending& p);
  void choose_exchange(Pending& p);
  void run_exchange(const Pending& p);
  void stage_exchange(const Pending& p, uint64_t k);
  void take_exchange(const Pending& p, uint64_t k);
  uint64_t part(const Pending& p, int from, int to) const;
  const unsigned char* carried(const Pending& p, int rank) const;
  bool all(Flag Control::*flag, uint64_t at_least);
  bool through(uint64_t ranks, uint64_t seq);
  uint64_t others() const {
    return (size_ == 64 ? ~uint64_t{0} : (uint64_t{1} << size_) - 1) & ~(uint64_t{1} << rank_);
  }
  Pending& pending(uint64_t seq) { return pending_[seq - complete_seq_ - 1]; }
  void step();
  void publish_flag(Flag& flag, uint64_t value);
  void ring_peers();
  void decide_spin();
  void finish_front();

  [[noreturn]] void raise_mismatch(const Pending& p, int peer);
  [[noreturn]] void raise_uneven(const Pending& p, int from, int to, uint64_t sent,
                                 uint64_t expected);
  [[noreturn]] void raise_wrong_message(int peer, const std::string& sent, const std::string& site,
                                        const Call& call, uint64_t seq);
  template <class E>
  [[noreturn]] void raise(const std::string& text, int peer, uint64_t seq, FailureKind kind);
  void look_at_peers(const Ticket& ticket);
  [[noreturn]] void raise_lost(int peer, const Ticket& ticket);
  std::string describe(const Call& call) const;
  std::string describe_pair(const Ticket& ticket) const;
  std::string describe_record(int rank, uint64_t seq);
  std::string last_words(int rank);
  [[noreturn]] void raise_timeout(const Ticket& ticket, Duration waited);
  bool behind(int peer, const Ticket& ticket);
  bool arrived(int peer, uint64_t seq);
  uint32_t site_index(CallSite site) { return recorder_.site(site); }
  /// The number in the root group of a rank of this one; what is none (no root, any source) stays.
  int root_rank(int q) const {
    return q >= 0 && q < size_ ? root_ranks_[static_cast<size_t>(q)] : q;
  }
  void write_down(FailureKind kind);

  // deadlock.cc
  struct DeadlockDetector;  // of all engines of one rank
  void join_watch(Engine* root);
  uint64_t awaited(const Ticket& ticket);
  uint64_t moved() const;
  void say_blocked(const Ticket& ticket);
  void say_free();
  std::string waits_behind(int q) const;
  void look_for_deadlock(const Ticket& ticket, Duration waited);
  void report_late(const Ticket& ticket, Duration waited, Duration left);
  [[noreturn]] void raise_deadlock(const std::string& text, uint64_t seq);
  void validate(const Call& call) const;
  void enter_data();
  void leave_data();

  std::unique_ptr<Host> host_;
  const int rank_, size_;
  const Duration timeout_;
  Control* self_;
  Control* peer_[kMaxRanks] = {};
  Control* bell_[kMaxRanks] = {};  // where a rank sleeps: its control memory in the root group
  std::shared_ptr<std::vector<Engine*>> engines_of_rank_;  // the engines of this rank
  std::function<bool()> others_;
  std::function<void()> look_;
  const int pid_;  // a forked child has this object too, and must not act for the rank
  bool spin_decided_ = false;
  uint32_t tests_ = 0;
  Clock::time_point look_at_{};
  int spin_us_ = 0;
  bool owes_ring_ = false;  // a flag was set and its sleepers not woken yet
  uint64_t rings_ = 0;
  bool threads_ = false;
  bool quiet_ = false;  // sleepers order memory for all ranks: publishing needs no fence

  uint64_t next_seq_ = 1;
  // complete <= through (own data phase over) <= published (peers see the slot) < next
  uint64_t published_seq_ = 0, through_seq_ = 0, complete_seq_ = 0;
  RingQueue<Pending> pending_;  // those after complete_seq_
  uint64_t done_by_all_ = 0;    // a lower bound of every peer's `done`
  std::unique_ptr<Pairs> pairs_;
  const std::string name_;
  flight::Recorder recorder_;
  flight::Dumper dumper_;
  std::shared_ptr<DeadlockDetector> watch_;
  std::vector<int> root_ranks_;  // this group's ranks in the root group
  uint64_t bytes_read_ = 0;
  std::exception_ptr failure_;
  bool gone_ = false;
};

}  // namespace trireme::local
