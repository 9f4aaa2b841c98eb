// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/engine.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/philox.h"
#include "trireme/base/trace.h"
#include "trireme/comm/local/waiter.h"

// Publishing, matching, waiting and failing. What a collective does with data is in collectives.cc,
// point to point in streams.cc, the texts of errors in report.cc.
namespace trireme::local {
namespace {

// Only what ranks must agree on.
uint64_t digest_of(uint64_t seq, const Call& c) {
  uint64_t head = static_cast<uint64_t>(c.op) | static_cast<uint64_t>(c.dtype) << 8 |
                  static_cast<uint64_t>(c.red) << 16 |
                  static_cast<uint64_t>(static_cast<uint32_t>(c.root)) << 32;
  return mix64(seq * 0x9E3779B97F4A7C15u ^ mix64(head ^ mix64(c.count)));
}

}  // namespace

Engine::Engine(std::unique_ptr<Host> host, Duration timeout)
    : host_(std::move(host)),
      rank_(host_->rank()),
      size_(host_->size()),
      timeout_(timeout),
      self_(host_->control(rank_)),
      pid_(static_cast<int>(::getpid())),
      threads_(host_->one_address_space()),
      sends_(new Stream[static_cast<size_t>(size_)]),
      recvs_(new Stream[static_cast<size_t>(size_)]) {
  check<UsageError>(size_ <= kMaxRanks, "{} ranks on one host; the local backend takes at most {}",
                    size_, kMaxRanks);
  for (int q = 0; q < size_; ++q) peer_[q] = host_->control(q);
}

Engine::~Engine() { leave(); }

void Engine::leave() {
  if (gone_ || ::getpid() != pid_) return;
  if (!pending_.empty()) try {
      progress();
    } catch (...) {  // peers were told
      return;
    }
  if (!pending_.empty())
    return fail_with(fmt::format("it left while call {}, {}, was under way", complete_seq_ + 1,
                                 describe(pending_.front().call)));
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
  full_fence();  // our flags first, then their `sleeping`
  for (int q = 0; q < size_; ++q) {
    if (q == rank_ || !peer_[q]->sleeping.load(std::memory_order_relaxed)) continue;
    peer_[q]->bell.fetch_add(1, std::memory_order_release);
    futex_wake(&peer_[q]->bell);
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

uint32_t Engine::site_index(CallSite site) {
  if (site.file == last_site_.file && site.line == last_site_.line) return last_site_index_;
  auto [it, fresh] = sites_[site.file].try_emplace(site.line, 0);
  if (fresh) {
    uint32_t n = self_->site_count.load(std::memory_order_relaxed);
    if (n < kSites) {
      std::string text = site.file ? fmt::format("{}:{}", site.file, site.line) : "?";
      if (text.size() >= sizeof(Site)) text = "…" + text.substr(text.size() - sizeof(Site) + 8);
      std::memcpy(self_->sites[n].text, text.c_str(), text.size() + 1);
      self_->site_count.store(n + 1, std::memory_order_release);
      it->second = n;
    } else {
      it->second = kSites;
    }
  }
  last_site_ = site;
  return last_site_index_ = it->second;
}

void Engine::record(const Pending& p) {
  const Call& c = p.call;
  Record& r = self_->records[p.seq % kRecords];
  constexpr auto release = std::memory_order_release;
  r.seq.store(0, std::memory_order_relaxed);
  r.count.store(c.count, release);
  r.posted_ticks.store(ticks(), release);
  r.done_ticks.store(0, release);
  r.op.store(c.op, release);
  r.dtype.store(c.dtype, release);
  r.red.store(c.red, release);
  r.root.store(c.root, release);
  r.tag.store(c.tag, release);
  r.state.store(CallState::posted, release);
  r.site.store(site_index(c.site), release);
  r.seq.store(p.seq, release);
}

/// False where the slot is still read by a peer; asked again later.
bool Engine::publish(Pending& p) {
  if (p.seq > kSlots && done_by_all_ + kSlots < p.seq) {
    uint64_t low = ~uint64_t{0};
    for (int q = 0; q < size_; ++q)
      low = std::min(low, peer_[q]->done.load(std::memory_order_acquire));
    done_by_all_ = low;
    if (low + kSlots < p.seq) return false;
  }
  const Call& c = p.call;
  Slot& slot = self_->slots[p.seq % kSlots];
  slot.digest = digest_of(p.seq, c);
  const size_t bytes = c.count * size_of(c.dtype) *
                       (c.op == OpKind::reduce_scatter ? static_cast<size_t>(size_) : 1);
  const bool gives = c.op != OpKind::broadcast || c.root == rank_;
  if (bytes <= kSmallBytes) {
    if (gives && bytes)
      std::memcpy(bytes <= kInlineBytes ? slot.inline_data : self_->payload[p.seq % kSlots], c.in,
                  bytes);
    slot.flags = 0;
  } else {
    host_->describe(c.in, bytes, slot);
  }
  failpoint("comm.post");
  publish_flag(slot.seq, p.seq);
  // After the flag: peers read the record only where the calls differ, and wait for it then.
  record(p);
  published_seq_ = p.seq;
  return true;
}

bool Engine::matched(Pending& p) {
  const uint64_t at = p.seq % kSlots;
  for (int q = 0; q < size_; ++q) {
    if (q == rank_) continue;
    Slot& slot = peer_[q]->slots[at];
    if (slot.seq.load(std::memory_order_acquire) != p.seq) return false;
  }
  const uint64_t digest = self_->slots[at].digest;
  for (int q = 0; q < size_; ++q)
    if (peer_[q]->slots[at].digest != digest) [[unlikely]]
      raise_mismatch(p, q);
  self_->records[p.seq % kRecords].state.store(CallState::matched, std::memory_order_relaxed);
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
  // Otherwise nobody sleeps for it: it only frees the slot, which a peer needs no sooner than this
  // rank's own publishing of that later call, and that rings.
  if (p.waits_for_all) owes_ring_ = true;
  through_seq_ = p.seq;
  return true;
}

void Engine::finish_front() {
  Record& r = self_->records[(complete_seq_ + 1) % kRecords];
  r.done_ticks.store(ticks(), std::memory_order_relaxed);
  r.state.store(CallState::done, std::memory_order_relaxed);
  ++complete_seq_;
  pending_.pop();
}

void Engine::step() {
  // Published ahead, so that peers see all that this rank has posted; executed in order.
  while (published_seq_ + 1 < next_seq_ && publish(pending(published_seq_ + 1))) continue;
  while (through_seq_ + 1 < next_seq_ && advance(pending(through_seq_ + 1))) continue;
  while (complete_seq_ < through_seq_ &&
         (!pending_.front().waits_for_all || all(&Control::done, complete_seq_ + 1)))
    finish_front();
  if (streams_pending_) advance_streams();
  if (owes_ring_) ring_peers();
}

void Engine::progress() {
  check_usable();
  try {
    step();
  } catch (const std::exception& e) {  // whatever it was, calls are half done: peers must know
    if (!failure_) {
      failure_ = std::current_exception();
      fail_with(e.what());
    }
    throw;
  }
}

Ticket Engine::post(const Call& call) {
  check_usable();
  check<UsageError>(!gone_, "{}: this rank has left the group", name_of(call.op));
  validate(call);
  Ticket ticket;
  if (call.op == OpKind::send || call.op == OpKind::recv) {
    Stream& s = (call.op == OpKind::send ? sends_ : recvs_)[call.root];
    s.calls.push_back(call);
    ++streams_pending_;
    ticket = {call.op == OpKind::send ? Ticket::sending : Ticket::receiving, call.root, ++s.posted};
  } else {
    Pending p;
    p.call = call;
    p.seq = next_seq_;
    pending_.push(p);
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
      return sends_[t.peer].complete >= t.seq;
    case Ticket::receiving:
      return recvs_[t.peer].complete >= t.seq;
  }
  return true;
}

bool Engine::complete(const Ticket& t) {
  if (is_complete(t)) return true;
  progress();
  return is_complete(t);
}

// Whether every rank of the host has a CPU of its own. Known once every peer has said where it
// runs: thread ranks start one by one.
void Engine::decide_spin() {
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

/// A burst of looks without a clock: many where spinning is right, else a few.
bool Engine::poll(const Ticket& ticket) {
  for (int i = spin_us_ ? 64 : 4; i > 0; --i) {
    if (complete(ticket)) return true;
    cpu_relax();
  }
  return false;
}

// Spin where every rank of the host has a CPU of its own, then yield for a bounded time, then sleep
// in slices; ten times a second look whether the peers live.
void Engine::wait(const Ticket& ticket, Deadline deadline) {
  if (complete(ticket)) return;
  if (!spin_decided_) decide_spin();
  using std::chrono::microseconds;
  constexpr microseconds look_each(100000);
  const auto begin = Clock::now();
  const auto spin_until = begin + microseconds(spin_us_);
  const auto yield_until = spin_until + microseconds(200);
  auto look_again = begin + look_each;
  while (!poll(ticket)) {
    const auto now = Clock::now();
    if (now >= look_again) {
      look_at_peers(ticket);
      look_again = now + look_each;
    }
    if (deadline.expired()) {
      if (complete(ticket)) return;
      raise_timeout(ticket, now - begin);
    }
    if (now < spin_until) continue;
    if (now < yield_until) {
      ::sched_yield();
      continue;
    }
    const uint32_t seen = self_->bell.load(std::memory_order_acquire);
    self_->sleeping.store(1, std::memory_order_relaxed);
    full_fence();  // our `sleeping` first, then their flags
    const bool ready = complete(ticket);
    if (!ready) futex_wait(&self_->bell, seen, std::max(1, deadline.poll_ms(100)));
    self_->sleeping.store(0, std::memory_order_relaxed);
    if (ready) return;
  }
}

void Engine::run(const Call& call) {
  const Ticket ticket = post(call);
  // The clock is read only where the peers are late.
  if (!poll(ticket)) wait(ticket, Deadline::after(timeout_));
}

}  // namespace trireme::local
