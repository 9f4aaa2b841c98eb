// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/comm/local/engine.h"

// What an engine says when a call cannot go on: who did what, and where in the program.
namespace trireme::local {
namespace {

std::string text_of(OpKind op, DType dtype, RedOp red, int root, uint64_t count) {
  std::string text = name_of(op);
  if (op == OpKind::barrier || op == OpKind::none) return text;
  text += fmt::format("({}[{}]", name_of(dtype), count);
  if (op == OpKind::all_reduce || op == OpKind::reduce || op == OpKind::reduce_scatter)
    text += fmt::format(", {}", name_of(red));
  if (op == OpKind::broadcast || op == OpKind::reduce) text += fmt::format(", root {}", root);
  if (op == OpKind::send) text += fmt::format(", to rank {}", root);
  if (op == OpKind::recv) text += fmt::format(", from rank {}", root);
  return text + ")";
}

constexpr size_t kMaxCount = size_t{1} << 48;  // times 8 bytes times 64 ranks still is a size_t

}  // namespace

std::string Engine::describe(const Call& c) const {
  std::string text = text_of(c.op, c.dtype, c.red, c.root, c.count);
  if (c.site.file && *c.site.file) text += fmt::format(" at {}:{}", c.site.file, c.site.line);
  return text;
}

/// The call that `rank` made under this number, as its recorder has it.
std::string Engine::describe_record(int rank, uint64_t seq) {
  Control* c = peer_[rank];
  const Record& r = c->records[seq % kRecords];
  constexpr auto acquire = std::memory_order_acquire;
  // It is written right after the flag that brought us here; a rank may die in between.
  for (Deadline patience = Deadline::after(std::chrono::milliseconds(50));
       seq && r.seq.load(acquire) < seq && arrived(rank, seq) && !patience.expired();)
    ::sched_yield();
  if (seq == 0 || r.seq.load(acquire) != seq) return "nothing";
  std::string text = text_of(r.op.load(acquire), r.dtype.load(acquire), r.red.load(acquire),
                             r.root.load(acquire), r.count.load(acquire));
  const uint32_t site = r.site.load(acquire);
  if (r.seq.load(std::memory_order_relaxed) != seq) return "nothing";  // rewritten meanwhile
  if (site < c->site_count.load(acquire)) text += std::string(" at ") + c->sites[site].text;
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
                              p.seq, a, describe_record(a, p.seq), b, describe_record(b, p.seq)),
                  peer, p.seq, FailureKind::mismatch);
}

void Engine::raise_wrong_message(int peer, const std::string& sent, const Call& call) {
  raise<Mismatch>(fmt::format("rank {} sent {} to rank {}, which called {} with tag {}. Both ends "
                              "must name the same dtype, "
                              "count and tag",
                              peer, sent, rank_, describe(call), call.tag),
                  peer, recvs_[peer].complete + 1, FailureKind::mismatch);
}

/// Whether the call waits for something from this peer.
bool Engine::behind(int peer, const Ticket& t) {
  if (peer == rank_) return false;
  if (t.kind != Ticket::collective) return t.peer == peer;
  return peer_[peer]->done.load(std::memory_order_acquire) < t.seq;
}

/// Throws where a peer that this call waits for will never come.
void Engine::look_at_peers(const Ticket& ticket) {
  auto gone = [&](int q) { return !host_->alive(q); };
  auto finished = [&](int q) {
    const RankState state = peer_[q]->state.load(std::memory_order_acquire);
    return state == RankState::left || state == RankState::failed;
  };
  // The dead first: others may have failed only because of them.
  for (int round = 0; round < 2; ++round)
    for (int q = 0; q < size_; ++q) {
      if (!behind(q, ticket) || !(round == 0 ? gone(q) && !finished(q) : finished(q))) continue;
      // It may have done its part before it went.
      if (complete(ticket)) return;
      if (behind(q, ticket)) raise_lost(q, ticket);
    }
}

void Engine::raise_lost(int q, const Ticket& ticket) {
  const std::string mine =
      ticket.kind == Ticket::collective
          ? fmt::format("call {}, {}", ticket.seq, describe_record(rank_, ticket.seq))
          : std::string(ticket.kind == Ticket::sending ? "send" : "recv");
  const uint64_t last = peer_[q]->last_call.load(std::memory_order_acquire);
  const RankState state = peer_[q]->state.load(std::memory_order_acquire);
  if (state == RankState::left)
    raise<Mismatch>(fmt::format("rank {} left after call {} while rank {} waits in {}. Every rank "
                                "must make the same calls",
                                q, last, rank_, mine),
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
        raise<PeerLost>(fmt::format("rank {} failed after call {}: {}", q, last, why), q,
                        ticket.seq, FailureKind::lost);
    }
  }
  raise<PeerLost>(fmt::format("rank {} (pid {}) died while rank {} waited in {}; {}", q,
                              peer_[q]->pid, rank_, mine, last_words(q)),
                  q, ticket.seq, FailureKind::lost);
}

/// Whether the peer has published this collective (or a later one).
bool Engine::arrived(int peer, uint64_t seq) {
  return peer_[peer]->slots[seq % kSlots].seq.load(std::memory_order_acquire) >= seq;
}

void Engine::raise_timeout(const Ticket& ticket, Duration waited) {
  const std::string within = fmt::format("within {:.3g} s of rank {}",
                                         std::chrono::duration<double>(waited).count(), rank_);
  const char* advice =
      "Such a rank is stopped, slower than the timeout of the group, or has made other calls";
  if (ticket.kind != Ticket::collective)
    raise<Timeout>(fmt::format("{} rank {} did not complete {}; {}. {}",
                               ticket.kind == Ticket::sending ? "send to" : "recv from",
                               ticket.peer, within, last_words(ticket.peer), advice),
                   ticket.peer, ticket.seq, FailureKind::timeout);
  // Those that never came; where all came, those that stuck in their data phase.
  bool all_came = true;
  for (int q = 0; q < size_; ++q) all_came = all_came && arrived(q, ticket.seq);
  std::string who, words;
  for (int q = 0; q < size_; ++q) {
    if (!behind(q, ticket) || (!all_came && arrived(q, ticket.seq))) continue;
    words += fmt::format("{}rank {}: {}", who.empty() ? "" : "; ", q, last_words(q));
    who += (who.empty() ? "" : ", ") + std::to_string(q);
  }
  if (who.empty()) who = std::to_string(rank_);  // the others are through by now
  raise<Timeout>(fmt::format("call {}, {}: rank {} did not {} {} ({}). {}", ticket.seq,
                             describe_record(rank_, ticket.seq), who,
                             all_came ? "get through" : "arrive", within, words, advice),
                 -1, ticket.seq, FailureKind::timeout);
}

void Engine::validate(const Call& c) const {
  switch (c.op) {
    case OpKind::none:
      fail<UsageError>("no operation");
    case OpKind::send:
    case OpKind::recv:
      check<UsageError>(c.root >= 0 && c.root < size_ && c.root != rank_,
                        "{}: there is no other rank {} in a group of {} (this is rank {})",
                        name_of(c.op), c.root, size_, rank_);
      break;
    case OpKind::broadcast:
    case OpKind::reduce:
      check<UsageError>(c.root >= 0 && c.root < size_, "{}: root {} is not in a group of {}",
                        name_of(c.op), c.root, size_);
      break;
    default:
      break;
  }
  check<UsageError>(c.count <= kMaxCount, "{}: {} elements are more than memory can hold",
                    name_of(c.op), c.count);
  const bool in_place =
      c.op == OpKind::all_reduce || c.op == OpKind::broadcast || c.op == OpKind::reduce;
  check<UsageError>(!in_place || c.in == c.out, "{} works in place: give one buffer as in and out",
                    name_of(c.op));
  check<UsageError>(c.op == OpKind::barrier || c.count == 0 ||
                        ((c.in || c.op == OpKind::recv) && (c.out || c.op == OpKind::send)),
                    "{}: no buffer for {} elements", name_of(c.op), c.count);
  if (c.op == OpKind::all_reduce || c.op == OpKind::reduce || c.op == OpKind::reduce_scatter)
    check<UsageError>(c.red != RedOp::avg || !is_integer(c.dtype),
                      "{}: avg of {} would round; use sum and divide, or a floating type",
                      name_of(c.op), name_of(c.dtype));
}

}  // namespace trireme::local
