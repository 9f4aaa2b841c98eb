// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/engine.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/philox.h"
#include "trireme/base/trace.h"
#include "trireme/comm/local/p2p.h"
#include "trireme/comm/local/waiter.h"

// Publishing, matching, waiting and failing. What a collective does with data is in collectives.cc,
// point to point in p2p.cc, the texts of errors in report.cc.
namespace trireme::local {
namespace {

// Only what ranks must agree on.
uint64_t digest_of(uint64_t seq, const Call& c) {
  uint64_t head = static_cast<uint64_t>(c.named()) | static_cast<uint64_t>(c.dtype) << 8 |
                  static_cast<uint64_t>(c.red) << 16 |
                  static_cast<uint64_t>(static_cast<uint32_t>(c.root)) << 32;
  const uint64_t count =
      c.op == Collective::all_to_all ? 0 : c.count;  // its counts go pair by pair
  return mix64(seq * 0x9E3779B97F4A7C15u ^ mix64(head ^ mix64(count)));
}

}  // namespace

Engine::Engine(std::unique_ptr<Host> host, Duration timeout, Engine* root,
               const std::vector<int>& root_ranks, const std::string& name)
    : host_(std::move(host)),
      rank_(host_->rank()),
      size_(host_->size()),
      timeout_(timeout),
      self_(host_->control(rank_)),
      pid_(static_cast<int>(::getpid())),
      threads_(host_->one_address_space()),
      name_(name),
      recorder_(&self_->ring),
      dumper_(&self_->ring, {.backend = "local",
                             .group = name,
                             .rank = rank_,
                             .size = size_,
                             .world_rank = root ? root_ranks[static_cast<size_t>(rank_)] : rank_,
                             .generation = self_->generation}) {
  check<UsageError>(size_ <= kMaxRanks, "{} ranks on one host; the local backend takes at most {}",
                    size_, kMaxRanks);
  for (int q = 0; q < size_; ++q) {
    peer_[q] = host_->control(q);
    bell_[q] = root ? root->bell_[root_ranks[static_cast<size_t>(q)]] : peer_[q];
  }
  quiet_ = true;
  if (root)
    quiet_ = root->quiet_;
  else
    for (int q = 0; q < size_; ++q) quiet_ = quiet_ && peer_[q]->membarrier;
  engines_of_rank_ = root ? root->engines_of_rank_ : std::make_shared<std::vector<Engine*>>();
  engines_of_rank_->push_back(this);
  for (int q = 0; q < size_; ++q)
    root_ranks_.push_back(root ? root_ranks[static_cast<size_t>(q)] : q);
  join_watch(root);
  pairs_ = std::make_unique<Pairs>(*this);
}

Engine::~Engine() {
  leave();
  std::erase(*engines_of_rank_, this);
}

void Engine::leave() {
  if (gone_ || ::getpid() != pid_) return;
  if (!idle()) try {
      progress();
    } catch (...) {  // peers were notified
      return;
    }
  if (!pending_.empty())
    return fail_with(fmt::format("it left while call {}, {}, was under way", complete_seq_ + 1,
                                 describe(pending_.front().call)));
  // What is in a channel can still be received; what is in a buffer of this rank cannot.
  if (const Call* call = pairs_->unfinished())
    return fail_with(
        fmt::format("it left while {} with tag {} was under way", describe(*call), call->tag));
  gone_ = true;
  self_->last_call.store(calls(), std::memory_order_relaxed);
  self_->state.store(RankState::left, std::memory_order_seq_cst);
  ring_peers();
}

void Engine::fail_with(const std::string& why, FailureKind kind) {
  if (gone_ || ::getpid() != pid_) return;
  gone_ = true;
  if (!failure_) failure_ = std::make_exception_ptr(Aborted("this rank gave up: " + why));
  std::strncpy(self_->failure, why.c_str(), sizeof self_->failure - 1);
  self_->failure_kind.store(kind, std::memory_order_relaxed);
  self_->last_call.store(calls(), std::memory_order_relaxed);
  self_->state.store(RankState::failed, std::memory_order_seq_cst);
  ring_peers();
  write_down(kind);
  if (!threads_) return;
  // Thread ranks share memory that may be freed once we unwind: no peer may be inside a data phase
  // then. A peer that enters one after this store sees the state and throws instead.
  Deadline patience = Deadline::after(std::chrono::seconds(30));
  for (int q = 0; q < size_; ++q)
    while (q != rank_ && peer_[q]->in_data.load(std::memory_order_seq_cst) && !patience.expired())
      ::sched_yield();
}

void Engine::enter_data() {
  if (!threads_) return;
  self_->in_data.store(1, std::memory_order_seq_cst);
  for (int q = 0; q < size_; ++q)
    if (peer_[q]->state.load(std::memory_order_seq_cst) == RankState::failed) {
      self_->in_data.store(0, std::memory_order_seq_cst);
      raise_lost(q, {Ticket::collective, -1, complete_seq_ + 1});
    }
}

void Engine::leave_data() {
  if (threads_) self_->in_data.store(0, std::memory_order_release);
}

// ---- publishing
// ------------------------------------------------------------------------------------------------------

void Engine::ring_peers() {
  owes_ring_ = false;
  ++rings_;
  // Our flags first, then their `sleeping`. Half of that order costs a fence here on every call, or
  // a membarrier when a rank goes to sleep.
  if (quiet_)
    compiler_barrier();
  else
    full_fence();
  for (int q = 0; q < size_; ++q) {
    if (q == rank_ || !bell_[q]->sleeping.load(std::memory_order_relaxed)) continue;
    bell_[q]->bell.fetch_add(1, std::memory_order_release);
    futex_wake(&bell_[q]->bell);
  }
}

// Sleepers are woken at the end of step(), or before this rank spends time on data: the fence then
// overlaps with other work, and one serves several flags.
void Engine::publish_flag(Flag& flag, uint64_t value) {
  flag.store(value, std::memory_order_release);
  owes_ring_ = true;
}

bool Engine::all(Flag Control::*flag, uint64_t at_least) {
  for (int q = 0; q < size_; ++q)
    if (q != rank_ && (peer_[q]->*flag).load(std::memory_order_acquire) < at_least) return false;
  return true;
}

/// Whether these ranks have completed this call.
bool Engine::through(uint64_t ranks, uint64_t seq) {
  for (; ranks; ranks &= ranks - 1)
    if (peer_[__builtin_ctzll(ranks)]->done.load(std::memory_order_acquire) < seq) return false;
  return true;
}

void Engine::record(const Pending& p) {
  const Call& c = p.call;
  recorder_.call(p.seq, {c.named(), c.dtype, c.red, c.root, c.tag, c.count}, c.site);
}

uint64_t Engine::record_pair(const Call& c, bool done) {
  return recorder_.pair({c.op, c.dtype, c.red, c.root, c.tag, c.count}, c.site, done);
}

/// Returns false if a peer still reads the slot; retried later.
bool Engine::publish(Pending& p) {
  if (p.seq > kSlots && done_by_all_ + kSlots < p.seq) {
    uint64_t low = ~uint64_t{0};
    for (int q = 0; q < size_; ++q)
      low = std::min(low, peer_[q]->done.load(std::memory_order_acquire));
    done_by_all_ = low;
    if (low + kSlots < p.seq) return false;
  }
  Slot& slot = self_->slots[p.seq % kSlots];
  slot.digest = digest_of(p.seq, p.call);
  publish_data(p, slot);
  failpoint("comm.post");
  publish_flag(slot.seq, p.seq);
  prefetch_to_write(&self_->slots[(p.seq + 1) % kSlots]);
  // After the flag: peers read the record only if the calls differ, and then wait for it.
  record(p);
  published_seq_ = p.seq;
  return true;
}

bool Engine::arrived(const Pending& p) const {
  const uint64_t at = p.seq % kSlots;
  for (int q = 0; q < size_; ++q)
    if (q != rank_ && peer_[q]->slots[at].seq.load(std::memory_order_acquire) != p.seq)
      return false;
  return true;
}

bool Engine::matched(Pending& p) {
  if (!arrived(p)) return false;
  const uint64_t at = p.seq % kSlots;
  const uint64_t digest = self_->slots[at].digest;
  for (int q = 0; q < size_; ++q)
    if (peer_[q]->slots[at].digest != digest) [[unlikely]]
      raise_mismatch(p, q);
  if (p.call.op == Collective::all_to_all) check_exchange(p);
  recorder_.matched(p.seq);
  return true;
}

// ---- progress
// --------------------------------------------------------------------------------------------------------

bool Engine::advance(Pending& p) {
  if (published_seq_ < p.seq && !publish(p)) return false;
  if (p.path == Path::unknown) {
    if (!matched(p)) return false;
    choose_path(p);
  }
  switch (p.path) {
    case Path::small:
      run_small(p);
      break;
    case Path::direct:
      run_direct(p);
      break;
    case Path::staged:
      if (!run_staged(p)) return false;
      break;
    default:
      break;
  }
  self_->done.store(p.seq, std::memory_order_release);
  // Otherwise no rank sleeps for it: it only frees the slot, which a peer needs no sooner than this
  // rank's publishing of that later call, which rings.
  if (p.path == Path::direct) owes_ring_ = true;
  through_seq_ = p.seq;
  return true;
}

void Engine::finish_front() {
  recorder_.done(complete_seq_ + 1);
  ++complete_seq_;
  pending_.pop();
}

void Engine::step() {
  // Published ahead, so that peers see all that this rank has posted; executed in order.
  while (published_seq_ + 1 < next_seq_ && publish(pending(published_seq_ + 1))) continue;
  while (through_seq_ + 1 < next_seq_ && advance(pending(through_seq_ + 1))) continue;
  while (complete_seq_ < through_seq_ && through(pending_.front().waits_for, complete_seq_ + 1))
    finish_front();
  if (pairs_->active()) pairs_->advance();
  if (owes_ring_) ring_peers();
  if (pairs_->owes_bells()) pairs_->ring_bells();
}

void Engine::progress() {
  check_usable();
  try {
    step();
  } catch (
      const std::exception& e) {  // whatever the error, calls are half done and peers must know
    if (!failure_) {
      failure_ = std::current_exception();
      fail_with(e.what());
    }
    throw;
  }
}

// A peer may need this rank's part of a call of another group before it reaches the one that this
// rank waits for. Errors there are thrown by the next call into that group. Returns true if
// something that does not ring this rank's bell is in flight.
bool Engine::progress_others() {
  for (Engine* e : *engines_of_rank_) {
    if (e == this || e->failure_ || (e->idle() && !e->pairs_->active())) continue;
    try {
      e->progress();
    } catch (const std::exception&) {
    }
  }
  return others_ && others_();
}

Ticket Engine::post(const Call& call) {
  check_usable();
  check<UsageError>(!gone_, "{}: this rank has left the group", name_of(call.op));
  validate(call);
  Ticket ticket;
  if (call.op == Collective::send || call.op == Collective::recv) {
    ticket = pairs_->post(call);
  } else {
    Pending& p = pending_.extend();
    p.begin(call, next_seq_);
    if (call.op == Collective::all_to_all) keep_counts(p);
    ticket = {Ticket::collective, -1, next_seq_++};
  }
  progress();
  return ticket;
}

bool Engine::is_complete(const Ticket& t) const {
  switch (t.kind) {
    case Ticket::none:
      return true;
    case Ticket::collective:
      return complete_seq_ >= t.seq;
    case Ticket::sending:
    case Ticket::receiving:
      return pairs_->is_complete(t);
  }
  return true;
}

int Engine::source(const Ticket& t) const { return pairs_->source(t); }

bool Engine::idle() const { return pending_.empty() && pairs_->idle(); }

bool Engine::complete(const Ticket& t) {
  if (is_complete(t)) return true;
  progress();
  return is_complete(t);
}

bool Engine::test(const Ticket& ticket) {
  if (complete(ticket)) return true;
  if (has_others()) progress_others();
  if (++tests_ % 64 == 0) {
    const auto now = Clock::now();
    if (now >= look_at_) {
      look_at_peers(ticket);
      look_at_ = now + std::chrono::milliseconds(100);
    }
  }
  return is_complete(ticket);
}

// Determines whether every rank of the host has its own CPU. This is known once every peer has
// published where it runs: thread ranks start one by one.
void Engine::decide_spin() {
  Engine& root =
      *engines_of_rank_->front();  // its ranks use the CPUs, whatever group they are in now
  if (&root != this) {
    root.decide_spin();
    spin_us_ = root.spin_us_;
    spin_decided_ = root.spin_decided_;
    return;
  }
  for (int q = 0; q < size_; ++q)
    if (peer_[q]->state.load(std::memory_order_acquire) == RankState::absent) return;
  int cpus = 0;
  for (int w = 0; w < 16; ++w) {
    uint64_t mask = 0;
    for (int q = 0; q < size_; ++q) mask |= peer_[q]->cpus[w].load(std::memory_order_relaxed);
    cpus += __builtin_popcountll(mask);
  }
  spin_us_ = std::min<double>(cpus, cgroup_cpus() + 0.01) >= size_ ? 2000 : 0;
  spin_decided_ = true;
}

/// If this rank can only wait for its peers' slots, checks nothing else for a moment, so that it
/// sees the last of them at once.
void Engine::look_for_slots() {
  if (through_seq_ + 1 == next_seq_) return pairs_->look();
  if (through_seq_ + 2 != next_seq_ || published_seq_ <= through_seq_ || pairs_->active() ||
      pending(published_seq_).path != Path::unknown)
    return cpu_relax();
  const Pending& p = pending(published_seq_);
  const uint64_t at = p.seq % kSlots;
  const size_t bytes = p.call.count * size_of(p.call.dtype);
  const bool beside = bytes > kInlineBytes && bytes <= kSmallBytes;
  for (int i = 0; i < 16 && !arrived(p); ++i) {
    // The payload's lines come along with the flag's, not after it.
    for (int q = 0; beside && q < size_; ++q)
      if (q != rank_)
        for (size_t line = 0; line < bytes && line < 256; line += 64)
          __builtin_prefetch(peer_[q]->payload[at] + line);
  }
}

/// A burst of checks without a clock: many if spinning is right, else a few.
bool Engine::poll(const Ticket& ticket) {
  for (int i = spin_us_ ? 64 : 4; i > 0; --i) {
    if (complete(ticket)) return true;
    if (engines_of_rank_->size() > 1)
      progress_others();
    else if (others_ && others_())
      continue;
    else if (spin_us_)
      look_for_slots();
    else
      cpu_relax();
  }
  return false;
}

// Spin if every rank of the host has its own CPU, then yield for a bounded time, then sleep in
// slices, after each of which the peers are looked at: a slice is short where they are few, because
// those that go on in place after a death begin with this look. Any progress starts this again: if
// ranks share CPUs, a yield lets the next one run, and a sleep costs two switches and a wake-up by
// every peer.
void Engine::wait(const Ticket& ticket, Deadline deadline) {
  if (complete(ticket)) return;
  if (!spin_decided_) decide_spin();
  using std::chrono::microseconds;
  constexpr microseconds search_each(100000);
  const auto look_each = std::min(search_each, microseconds(5000) * size_);
  const auto begin = Clock::now();
  constexpr microseconds yield_for(200);
  auto spin_until = begin + microseconds(spin_us_), yield_until = spin_until + yield_for;
  uint64_t rings = rings_;
  auto look_again = begin + look_each, search_again = begin + search_each;
  bool reported = false;
  struct Free {
    Engine& engine;
    ~Free() { engine.say_free(); }
  } free{*this};
  while (!poll(ticket)) {
    const auto now = Clock::now();
    if (now >= look_again) {
      look_again = now + look_each;
      look_at_peers(ticket);
    }
    if (now >= search_again) {
      search_again = now + search_each;
      look_for_deadlock(ticket, now - begin);
      constexpr std::chrono::seconds stall(1), report_after(3);
      if (look_ && now - begin >= stall) {
        look_();
      } else if (!reported && now - begin >= report_after) {
        reported = true;
        report_late(ticket, now - begin, deadline.remaining());
      }
    }
    if (deadline.expired()) {
      if (complete(ticket)) return;
      raise_timeout(ticket, now - begin);
    }
    if (rings != rings_) {
      rings = rings_;
      spin_until = now + microseconds(spin_us_), yield_until = spin_until + yield_for;
    }
    if (now < spin_until) continue;
    if (now < yield_until) {
      ::sched_yield();
      continue;
    }
    const uint32_t seen = bell_[rank_]->bell.load(std::memory_order_acquire);
    bell_[rank_]->sleeping.store(1, std::memory_order_relaxed);
    // Our `sleeping` first, then their flags.
    if (quiet_)
      membarrier_everywhere();
    else
      full_fence();
    const bool ready = complete(ticket);
    const bool look_soon = !ready && has_others() && progress_others();
    const auto slice = static_cast<int>(look_each.count() / 1000);
    if (!ready)
      futex_wait(&bell_[rank_]->bell, seen, std::max(1, deadline.poll_ms(look_soon ? 1 : slice)));
    bell_[rank_]->sleeping.store(0, std::memory_order_relaxed);
    if (ready) return;
  }
}

void Engine::run(const Call& call) {
  const Ticket ticket = post(call);
  // The clock is read only if the peers are late.
  if (!poll(ticket)) wait(ticket, Deadline::after(timeout_));
}

}  // namespace trireme::local
