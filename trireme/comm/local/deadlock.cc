// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/comm/flight/cycle.h"
#include "trireme/comm/local/p2p.h"

// Calls of different groups, sends and receives have no common slot in which ranks could compare
// them. So a rank that waits for long publishes on a board which ranks must make a call before it
// can continue, and after a second searches the others' boards for a cycle. A rank is in one wait
// at a time and posts nothing meanwhile, so a stable cycle never ends. It counts only if all boards
// are the same after a while in which each of its ranks made two more rounds of all that it has in
// flight, and nothing moved: then no rank was merely late, busy copying, or stopped.
namespace trireme::local {
namespace {

constexpr std::chrono::milliseconds kSearchAfter(1000), kStable(200);

template <size_t n>
void store_text(Flag (&to)[n], const std::string& text) {
  char bytes[n * 8] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), sizeof bytes - 1));
  for (size_t i = 0; i < n; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * 8, 8);
    to[i].store(word, std::memory_order_release);
  }
}

template <size_t n>
std::string load_text(const Flag (&from)[n]) {
  char bytes[n * 8];
  for (size_t i = 0; i < n; ++i) {
    const uint64_t word = from[i].load(std::memory_order_acquire);
    std::memcpy(bytes + i * 8, &word, 8);
  }
  return {bytes, ::strnlen(bytes, sizeof bytes)};
}

struct Said {
  uint64_t version = 0, beat = 0, waits_for = 0;
  std::string text;
};

/// Returns what a board says, or nothing while its owner writes it.
Said read(const Board& board) {
  Said said;
  const uint64_t version = board.version.load(std::memory_order_acquire);
  if (version == 0 || version % 2) return {};
  said.version = version;
  said.beat = board.beat.load(std::memory_order_acquire);
  said.waits_for = board.waits_for.load(std::memory_order_acquire);
  said.text = load_text(board.text);
  return board.version.load(std::memory_order_relaxed) == version ? said : Said{};
}

}  // namespace

struct Engine::DeadlockDetector {
  std::vector<Board*> boards;  // of the root group's ranks
  Board* mine = nullptr;
  int self = 0;
  bool said = false;  // that it waits
  uint64_t what = 0;  // a hash of what it said
  WaitMark mark;      // for the launcher
  struct Seen {
    int rank;
    uint64_t version, beat;
  };
  std::vector<Seen> circle;  // that stood at `since`
  Clock::time_point since{};

  void write(uint64_t waits_for, const std::string& text) {
    const uint64_t version = mine->version.load(std::memory_order_relaxed);
    mine->version.store(version + 1, std::memory_order_relaxed);
    // Each store that follows is a release, so that none of them is seen before the odd version.
    mine->waits_for.store(waits_for, std::memory_order_release);
    if (waits_for) store_text(mine->text, text);
    mine->version.store(version + 2, std::memory_order_release);
  }
};

void Engine::join_watch(Engine* root) {
  if (root) {
    watch_ = root->watch_;
    return;
  }
  watch_ = std::make_shared<DeadlockDetector>();
  for (int q = 0; q < size_; ++q) watch_->boards.push_back(&peer_[q]->board);
  watch_->self = rank_;
  watch_->mine = watch_->boards[static_cast<size_t>(rank_)];
}

/// Returns the root ranks that must make a call before this one can continue.
uint64_t Engine::awaited(const Ticket& t) {
  uint64_t mask = 0;
  if (t.kind == Ticket::collective) {
    for (int q = 0; q < size_; ++q)
      if (q != rank_ && !arrived(q, t.seq) &&
          peer_[q]->posted.load(std::memory_order_acquire) < t.seq)
        mask |= uint64_t{1} << root_ranks_[static_cast<size_t>(q)];
  } else if (const int q = pairs_->waits_for(t); q >= 0) {
    mask = uint64_t{1} << root_ranks_[static_cast<size_t>(q)];
  }
  return mask;
}

/// Changes whenever any call that this rank has in flight makes progress.
uint64_t Engine::moved() const {
  uint64_t sum = 0;
  for (const Engine* e : *engines_of_rank_) {
    sum += e->bytes_read_ + e->published_seq_ + e->through_seq_ + e->complete_seq_ +
           e->pairs_->events();
    for (const Flag* flag : {&e->self_->staged, &e->self_->reduced, &e->self_->consumed})
      sum += flag->load(std::memory_order_relaxed);
  }
  return sum;
}

void Engine::say_blocked(const Ticket& t) {
  DeadlockDetector& w = *watch_;
  for (Engine* e : *engines_of_rank_) e->self_->posted.store(e->calls(), std::memory_order_release);
  const uint64_t mask = awaited(t);
  const uint64_t what =
      stable_hash({mask, reinterpret_cast<uint64_t>(this), uint64_t{t.kind},
                   static_cast<uint64_t>(static_cast<int64_t>(t.peer)), t.seq, moved()});
  if (!w.said || what != w.what) {
    w.said = true;
    w.what = what;
    const std::string text =
        t.kind == Ticket::collective
            ? fmt::format("call {} of group {}, {}", t.seq, name_, describe_record(rank_, t.seq))
            : fmt::format("{} of group {}", describe_pair(t), name_);
    w.write(mask, text);
    w.mark.begin(text);
  }
  w.mine->beat.fetch_add(1, std::memory_order_release);
}

/// A rank may legitimately be late: ranks that wait for it log that once and go on waiting. The
/// lowest of them reports for all that wait in the same call.
void Engine::report_late(const Ticket& ticket, Duration waited, Duration left) {
  if (complete(ticket)) return;
  const DeadlockDetector& w = *watch_;
  const uint64_t mask = awaited(ticket);
  const std::string mine = read(*w.mine).text;
  const std::string call = mine.substr(0, mine.find(", "));  // "call 5 of group world"
  std::string absent, with;
  int named = 0, more = 0;
  for (int r = 0; r < static_cast<int>(w.boards.size()); ++r) {
    if (r == w.self) continue;
    const Said said = read(*w.boards[static_cast<size_t>(r)]);
    if (mask >> r & 1) {
      constexpr int kNamed = 8;
      if (++named > kNamed)
        ++more;
      else
        absent += fmt::format(
            "{} rank {} {}", absent.empty() ? "" : ";", r,
            said.waits_for
                ? "is in " + said.text
                : "is not waiting in a call: it computes, reads data, is stopped or has ended");
    } else if (said.waits_for && ticket.kind == Ticket::collective &&
               said.text.substr(0, said.text.find(", ")) == call) {
      if (r < w.self) return;
      with += (with.empty() ? "" : ", ") + std::to_string(r);
    }
  }
  log_warn(
      "rank {} has waited {:.1f} s in {}{}{}{}. A rank may be late; the call's deadline is in "
      "{:.0f} s",
      w.self, std::chrono::duration<double>(waited).count(), mine,
      with.empty() ? "" : ", as rank " + with + " has",
      absent.empty() ? ". All have come to it" : ":" + absent,
      more ? fmt::format("; and {} more", more) : "", std::chrono::duration<double>(left).count());
}

void Engine::say_free() {
  DeadlockDetector& w = *watch_;
  if (!w.said) return;
  w.said = false;
  w.mark.end();
  w.circle.clear();
  w.write(0, "");
}

/// ", and waits for rank 3": those behind which a rank of this group waits in the end, in whatever
/// group; "" if it does not wait, or for this rank alone.
std::string Engine::waits_behind(int q) const {
  const DeadlockDetector& w = *watch_;
  const uint64_t first = uint64_t{1} << root_rank(q);
  uint64_t seen = uint64_t{1} << w.self, next = first, last = 0;
  while (next & ~seen) {
    const int r = std::countr_zero(next & ~seen);
    seen |= uint64_t{1} << r;
    const uint64_t further = read(*w.boards[static_cast<size_t>(r)]).waits_for;
    next |= further;
    if (!further) last |= uint64_t{1} << r;
  }
  std::string text;
  for (last &= ~first; last; last &= last - 1)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", std::countr_zero(last));
  return text.empty() ? "" : ", and waits for rank " + text;
}

void Engine::look_for_deadlock(const Ticket& ticket, Duration waited) {
  DeadlockDetector& w = *watch_;
  say_blocked(ticket);
  auto fail_in = [&](const std::string& text) {
    if (!complete(ticket)) raise_deadlock(text, ticket.seq);
  };
  // Another rank of the cycle may have seen it first.
  const auto self = static_cast<size_t>(w.self);
  const uint64_t me = uint64_t{1} << self, version = w.mine->version.load();
  for (const Board* board : w.boards)
    if (board->found.load(std::memory_order_acquire) & me &&
        board->found_version[self].load(std::memory_order_relaxed) == version)
      fail_in(load_text(board->found_text));
  if (waited < kSearchAfter) return;

  std::vector<Said> said;
  std::vector<std::vector<int>> waits(w.boards.size());
  for (size_t r = 0; r < w.boards.size(); ++r) {
    said.push_back(read(*w.boards[r]));
    for (size_t q = 0; q < w.boards.size(); ++q)
      if (said[r].waits_for >> q & 1) waits[r].push_back(static_cast<int>(q));
  }
  const std::vector<int> cycle = flight::cycle_through(waits, w.self);
  const auto now = Clock::now();
  bool same = cycle.size() == w.circle.size(), beats = true;
  for (size_t i = 0; i < cycle.size() && same; ++i) {
    const Said& s = said[static_cast<size_t>(cycle[i])];
    same = w.circle[i].rank == cycle[i] && w.circle[i].version == s.version;
    beats = beats && (cycle[i] == w.self || s.beat >= w.circle[i].beat + 2);
  }
  if (!same) {
    w.circle.clear();
    for (int r : cycle) w.circle.push_back({r, said[size_t(r)].version, said[size_t(r)].beat});
    w.since = now;
    return;
  }
  if (cycle.empty() || !beats || now - w.since < kStable) return;

  // The same text whichever rank finds it.
  const size_t lowest =
      static_cast<size_t>(std::min_element(cycle.begin(), cycle.end()) - cycle.begin());
  std::string text = "ranks wait for each other: ";
  constexpr size_t kNamed = 6;
  uint64_t mask = 0;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const int r = cycle[(lowest + i) % cycle.size()], next = cycle[(lowest + i + 1) % cycle.size()];
    mask |= uint64_t{1} << r;
    if (i < kNamed)
      text += fmt::format("{}rank {} is in {}, and needs rank {}", i ? "; " : "", r,
                          said[static_cast<size_t>(r)].text, next);
  }
  if (cycle.size() > kNamed) text += fmt::format("; and {} more", cycle.size() - kNamed);
  text += ". Every rank must make the same calls in the same order";
  w.mine->found.store(0, std::memory_order_release);
  for (int r : cycle)
    w.mine->found_version[r].store(said[static_cast<size_t>(r)].version, std::memory_order_relaxed);
  store_text(w.mine->found_text, text);
  w.mine->found.store(mask, std::memory_order_release);
  fail_in(text);
}

}  // namespace trireme::local
