// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/local/p2p.h"

// The errors of an engine when a call cannot continue: which rank did what, and where in the
// program. Ranks have their numbers in the root group, since a program with groups for several axes
// would not know a group's own.
namespace trireme::local {
namespace {

constexpr size_t kMaxCount = size_t{1} << 48;  // times 16 bytes times 64 ranks still is a size_t

// The total number of elements; `counts` are those of one rank for each rank.
size_t total_of(const uint64_t* counts, int size) {
  check<UsageError>(counts != nullptr, "all_to_all: no counts");
  size_t total = 0;
  for (int q = 0; q < size; ++q) {
    check<UsageError>(counts[q] <= kMaxCount && total <= kMaxCount,
                      "all_to_all: {} elements are more than memory can hold", counts[q]);
    total += counts[q];
  }
  return total;
}

void validate_exchange(const Call& c, int size) {
  const size_t sent = total_of(c.send_counts, size), received = total_of(c.recv_counts, size);
  check<UsageError>((c.in || sent == 0) && (c.out || received == 0),
                    "all_to_all: no buffer for {} elements to send and {} to receive", sent,
                    received);
  const auto in = reinterpret_cast<uintptr_t>(c.in), out = reinterpret_cast<uintptr_t>(c.out);
  const size_t item = size_of(c.dtype);
  check<UsageError>(!sent || !received || in + sent * item <= out || out + received * item <= in,
                    "all_to_all: input and output overlap; give it two buffers");
}

}  // namespace

std::string Engine::describe(const Call& c) const {
  std::string text = flight::call_text(c.named(), c.dtype, c.red, root_rank(c.root), c.count);
  if (c.site.file && *c.site.file) text += fmt::format(" at {}:{}", c.site.file, c.site.line);
  return text;
}

/// Describes a send or recv in flight.
std::string Engine::describe_pair(const Ticket& ticket) const {
  const Call* call = pairs_->call_of(ticket);
  return call ? fmt::format("{} with tag {}", describe(*call), call->tag)
         : ticket.kind == Ticket::sending ? "send"
                                          : "recv";
}

/// The call that `rank` made under this number, as its recorder has it.
std::string Engine::describe_record(int rank, uint64_t seq) {
  const flight::Ring& ring = peer_[rank]->ring;
  const flight::Record& r = ring.calls[seq % flight::kRecords];
  constexpr auto acquire = std::memory_order_acquire;
  // It is written right after the flag that led here; a rank may die in between.
  for (Deadline patience = Deadline::after(std::chrono::milliseconds(50));
       seq && r.seq.load(acquire) < seq && arrived(rank, seq) && !patience.expired();)
    ::sched_yield();
  if (seq == 0 || r.seq.load(acquire) != seq) return "nothing";
  std::string text =
      flight::call_text(r.op.load(acquire), r.dtype.load(acquire), r.red.load(acquire),
                        root_rank(r.root.load(acquire)), r.count.load(acquire));
  const uint32_t site = r.site.load(acquire);
  if (r.seq.load(std::memory_order_relaxed) != seq) return "nothing";  // rewritten meanwhile
  if (site < ring.site_count.load(acquire)) text += std::string(" at ") + ring.sites[site].text;
  return text;
}

/// The last collective that `rank` published.
std::string Engine::last_words(int rank) {
  uint64_t last = 0;
  for (const Slot& s : peer_[rank]->slots)
    last = std::max(last, s.seq.load(std::memory_order_acquire));
  return last ? fmt::format("its last call was number {}, {}", last, describe_record(rank, last))
              : "it has made no call yet";
}

template <class E>
void Engine::raise(const std::string& text, int peer, uint64_t seq, FailureKind kind) {
  failure_ = std::make_exception_ptr(E(text, {rank_, peer, "", static_cast<int64_t>(seq)}));
  fail_with(text, kind);
  std::rethrow_exception(failure_);
}

void Engine::raise_mismatch(const Pending& p, int peer) {
  const int a = std::min(rank_, peer), b = std::max(rank_, peer);
  raise<Mismatch>(fmt::format("call {}: rank {} called {}, but rank {} called {}. Every rank must "
                              "make the same calls in the "
                              "same order",
                              p.seq, root_rank(a), describe_record(a, p.seq), root_rank(b),
                              describe_record(b, p.seq)),
                  peer, p.seq, FailureKind::mismatch);
}

void Engine::raise_deadlock(const std::string& text, uint64_t seq) {
  raise<Mismatch>(text, -1, seq, FailureKind::mismatch);
}

/// Dumps what this rank did last in all its groups, for `trireme trace flight`, and what those
/// ranks did that can no longer dump it.
void Engine::write_down(FailureKind kind) {
  const std::string folder = flight::flight_folder();
  if (folder.empty() || name_.empty()) return;
  // A rank that gives up for its own reason has reported it, and its calls add nothing. But if
  // others had a reason to dump, all do.
  bool own_reason = kind == FailureKind::other;
  for (int q = 0; q < size_; ++q)
    own_reason = own_reason ||
                 (peer_[q]->state.load(std::memory_order_acquire) == RankState::failed &&
                  peer_[q]->failure_kind.load(std::memory_order_acquire) == FailureKind::other);
  if (own_reason && ::access(folder.c_str(), F_OK) != 0) return;
  if (flight::make_folder(folder.c_str()))
    log_warn("the last calls of each rank go to {}; 'trireme trace flight {}' reads them", folder,
             folder);
  for (Engine* e : *engines_of_rank_) {
    e->dumper_.dump_failure(self_->failure);
    for (int q = 0; q < e->size_; ++q) {
      const RankState state = e->peer_[q]->state.load(std::memory_order_acquire);
      const bool dead = !e->host_->alive(q), left = state == RankState::left;
      const bool stuck = kind == FailureKind::timeout && state == RankState::alive;
      if (q != e->rank_ && (dead || left || stuck))
        e->dumper_.dump_for(e->peer_[q]->ring, q, e->root_ranks_[static_cast<size_t>(q)],
                            e->peer_[q]->pid);
    }
  }
}

void Engine::raise_wrong_message(int peer, const std::string& sent, const std::string& site,
                                 const Call& call, uint64_t seq) {
  raise<Mismatch>(
      fmt::format("rank {} sent {} to rank {}, which called {} with tag {}{}. Both ends must name "
                  "the same dtype and count",
                  root_rank(peer), sent, root_rank(rank_), describe(call), call.tag,
                  site.empty() ? "" : fmt::format("; it was sent at {}", site)),
      peer, seq, FailureKind::mismatch);
}

void Engine::raise_uneven(const Pending& p, int from, int to, uint64_t sent, uint64_t expected) {
  raise<Mismatch>(
      fmt::format(
          "call {}: rank {} sends {} elements to rank {} in {}, but rank {} expects {} from "
          "it in {}. What a rank sends to another must be what that one expects",
          p.seq, root_rank(from), sent, root_rank(to), describe_record(from, p.seq), root_rank(to),
          expected, describe_record(to, p.seq)),
      from != rank_ ? from : to, p.seq, FailureKind::mismatch);
}

/// Whether the call waits for something from this peer.
bool Engine::behind(int peer, const Ticket& t) {
  if (peer == rank_) return false;
  if (t.kind != Ticket::collective) {
    const int awaited = pairs_->peer_of(t);
    return !is_complete(t) && (awaited == peer || awaited == kAnySource);
  }
  return peer_[peer]->done.load(std::memory_order_acquire) < t.seq;
}

/// Throws if a peer that this call waits for will never come.
void Engine::look_at_peers(const Ticket& ticket) {
  auto gone = [&](int q) { return !host_->alive(q); };
  auto state_of = [&](int q) { return peer_[q]->state.load(std::memory_order_acquire); };
  // A recv of any source is given up when one rank failed, or all have left.
  const bool any = ticket.kind == Ticket::receiving && pairs_->peer_of(ticket) == kAnySource;
  bool all_left = true;
  for (int q = 0; q < size_ && any; ++q)
    all_left = all_left && (q == rank_ || state_of(q) == RankState::left);
  auto finished = [&](int q) {
    const RankState state = state_of(q);
    return (state == RankState::left && (!any || all_left)) || state == RankState::failed;
  };
  // The dead first: others may have failed only because of them.
  for (int round = 0; round < 2; ++round)
    for (int q = 0; q < size_; ++q) {
      if (!behind(q, ticket)) continue;
      if (!(round == 0 ? gone(q) && !finished(q) && state_of(q) != RankState::left : finished(q)))
        continue;
      // It may have done its part before it left.
      if (complete(ticket)) return;
      if (behind(q, ticket)) raise_lost(q, ticket);
    }
}

void Engine::raise_lost(int q, const Ticket& ticket) {
  const std::string mine =
      ticket.kind == Ticket::collective
          ? fmt::format("call {}, {}", ticket.seq, describe_record(rank_, ticket.seq))
          : describe_pair(ticket);
  const uint64_t last = peer_[q]->last_call.load(std::memory_order_acquire);
  const RankState state = peer_[q]->state.load(std::memory_order_acquire);
  if (state == RankState::left)
    raise<Mismatch>(fmt::format("rank {} left after call {} while rank {} waits in {}. Every rank "
                                "must make the same calls",
                                root_rank(q), last, root_rank(rank_), mine),
                    q, ticket.seq, FailureKind::mismatch);
  if (state == RankState::failed) {
    const std::string why(peer_[q]->failure,
                          ::strnlen(peer_[q]->failure, sizeof peer_[q]->failure));
    switch (auto kind = peer_[q]->failure_kind.load(std::memory_order_acquire)) {
      case FailureKind::mismatch:
        raise<Mismatch>(why, q, ticket.seq, kind);
      case FailureKind::lost:
        raise<PeerLost>(why, q, ticket.seq, kind);
      case FailureKind::timeout:
        raise<Timeout>(why, q, ticket.seq, kind);
      case FailureKind::other:
        raise<PeerLost>(fmt::format("rank {} failed after call {}: {}", root_rank(q), last, why), q,
                        ticket.seq, FailureKind::lost);
    }
  }
  raise<PeerLost>(fmt::format("rank {} (pid {}) died while rank {} waited in {}; {}", root_rank(q),
                              peer_[q]->pid, root_rank(rank_), mine, last_words(q)),
                  q, ticket.seq, FailureKind::lost);
}

/// Whether the peer has published this collective (or a later one).
bool Engine::arrived(int peer, uint64_t seq) {
  return peer_[peer]->slots[seq % kSlots].seq.load(std::memory_order_acquire) >= seq;
}

void Engine::raise_timeout(const Ticket& ticket, Duration waited) {
  const std::string within =
      fmt::format("within {:.3g} s of rank {}", std::chrono::duration<double>(waited).count(),
                  root_rank(rank_));
  const char* advice =
      "Such a rank is stopped, slower than the timeout of the group, or has made other calls";
  if (ticket.kind != Ticket::collective) {
    std::string words;
    for (int q = 0; q < size_; ++q)
      if (behind(q, ticket))
        words += fmt::format("{}rank {}: {}{}", words.empty() ? "" : "; ", root_rank(q),
                             last_words(q), waits_behind(q));
    raise<Timeout>(fmt::format("{} did not complete {} ({}). {}", describe_pair(ticket), within,
                               words, advice),
                   pairs_->peer_of(ticket), ticket.seq, FailureKind::timeout);
  }
  // Names the ranks that never came. If all came, those stuck in their data phase: a waiting rank
  // has done all that it can, so the rank that has done the least waits for none.
  bool all_came = true;
  for (int q = 0; q < size_; ++q) all_came = all_came && arrived(q, ticket.seq);
  const auto progress = [&](int q) {
    auto load = [](const Flag& flag) { return flag.load(std::memory_order_acquire); };
    const Control& c = *peer_[q];
    return std::pair{load(c.done), load(c.staged) + load(c.reduced) + load(c.consumed)};
  };
  auto least = progress(rank_);
  for (int q = 0; q < size_; ++q)
    if (behind(q, ticket)) least = std::min(least, progress(q));
  std::string who, words;
  for (int q = 0; q < size_; ++q) {
    if (!behind(q, ticket) || (all_came ? progress(q) > least : arrived(q, ticket.seq))) continue;
    words += fmt::format("{}rank {}: {}{}", who.empty() ? "" : "; ", root_rank(q), last_words(q),
                         waits_behind(q));
    who += (who.empty() ? "" : ", ") + std::to_string(root_rank(q));
  }
  if (who.empty()) who = std::to_string(root_rank(rank_));  // the others have completed by now
  raise<Timeout>(fmt::format("call {}, {}: rank {} did not {} {} ({}). {}", ticket.seq,
                             describe_record(rank_, ticket.seq), who,
                             all_came ? "get through" : "arrive", within, words, advice),
                 -1, ticket.seq, FailureKind::timeout);
}

// Every call runs this, so texts are built only for errors.
void Engine::validate(const Call& c) const {
  const bool rooted = c.root >= 0 && c.root < size_;
  switch (c.op) {
    case Collective::none:
      fail<UsageError>("no operation");
    case Collective::recv:
      if (c.root == kAnySource && size_ > 1) break;
      [[fallthrough]];
    case Collective::send:
      if (!rooted || c.root == rank_)
        fail<UsageError>("{}: there is no other rank {} in a group of {} (this is rank {})",
                         name_of(c.op), c.root, size_, rank_);
      break;
    case Collective::all_to_all:
      return validate_exchange(c, size_);
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
      if (!rooted)
        fail<UsageError>("{}: root {} is not in a group of {}", name_of(c.op), c.root, size_);
      break;
    default:
      break;
  }
  if (c.count > kMaxCount)
    fail<UsageError>("{}: {} elements are more than memory can hold", name_of(c.op), c.count);
  const bool in_place =
      c.op == Collective::all_reduce || c.op == Collective::broadcast || c.op == Collective::reduce;
  if (in_place && c.in != c.out)
    fail<UsageError>("{} works in place: give one buffer as in and out", name_of(c.op));
  const bool needs_in =
      c.op != Collective::recv && (c.op != Collective::scatter || c.root == rank_);
  const bool needs_out =
      c.op != Collective::send && (c.op != Collective::gather || c.root == rank_);
  if (c.op != Collective::barrier && c.count && ((needs_in && !c.in) || (needs_out && !c.out)))
    fail<UsageError>("{}: no buffer for {} elements", name_of(c.op), c.count);
  if (c.op != Collective::all_reduce && c.op != Collective::reduce &&
      c.op != Collective::reduce_scatter)
    return;
  if (c.red == ReduceOp::avg && is_integer(c.dtype))
    fail<UsageError>("{}: avg of {} would round; use sum and divide, or a floating type",
                     name_of(c.op), name_of(c.dtype));
  if (is_bitwise(c.red) && !is_integer(c.dtype))
    fail<UsageError>("{}: {} is for integers, not for {}", name_of(c.op), name_of(c.red),
                     name_of(c.dtype));
  if ((c.red == ReduceOp::min || c.red == ReduceOp::max) && is_complex(c.dtype))
    fail<UsageError>("{}: {} of {} has no meaning: complex numbers have no order", name_of(c.op),
                     name_of(c.red), name_of(c.dtype));
}

}  // namespace trireme::local
