// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/comm/gloo/gloo_backend.h"
#include "trireme/comm/gloo/tags.h"
#include "trireme/rendezvous/join.h"

// Waits for calls, and exchanges what ranks that wait for long report.
namespace trireme::detail {

namespace {
constexpr Duration kMoveEvery = std::chrono::microseconds(50);
}  // namespace

uint64_t GlooBackend::What::digest() const {
  uint64_t d = mixed(static_cast<uint64_t>(op) + 1);
  if (op != Collective::barrier) d = mixed(d ^ static_cast<uint64_t>(dtype));
  if (facts_of(op).reduces) d = mixed(d ^ static_cast<uint64_t>(red));
  return mixed(mixed(d ^ static_cast<uint64_t>(root)) ^ count);
}

std::string GlooBackend::What::text() const {
  std::string t = name_of(op);
  if (facts_of(op).is_uneven) {
    t += fmt::format("({})", name_of(dtype));
  } else if (op != Collective::barrier) {
    t += fmt::format("({}[{}]", name_of(dtype), count);
    if (facts_of(op).reduces) t += fmt::format(", {}", name_of(red));
    if (facts_of(op).has_root) t += fmt::format(", root {}", root);
    t += ")";
  }
  if (site.file && *site.file) t += fmt::format(" at {}:{}", site.file, site.line);
  return t;
}

void GlooBackend::wait(Token token, Duration timeout) {
  const auto at = held_.find(token.number);
  if (at == held_.end()) return;
  const std::shared_ptr<Posted> call = at->second;
  if (call->message) {
    const Deadline deadline = Deadline::after(timeout);
    Deadline look = Deadline::after(kStall);
    while (others_move() && !deadline.expired()) {
      if (completed(token)) return;
      std::this_thread::sleep_for(kMoveEvery);
      if (!look_ || !look.expired()) continue;
      look_();
      look = Deadline::after(kLookEvery);
    }
    wait_for_message(*call, deadline.remaining());
  } else {
    wait_for_collective(call, timeout);
  }
  finish(token.number);
}

std::string GlooBackend::text_of(const Posted& call) const {
  if (!call.message && call.seq) return fmt::format("call {}, {}", call.seq, call.what.text());
  std::string who = call.peer == kAnySource ? "any rank" : fmt::format("rank {}", call.peer);
  return fmt::format("{} {}, {}", call.what.op == Collective::send ? "send to" : "recv from", who,
                     call.what.text());
}

Messenger::Outcome GlooBackend::wait_and_look(Posted& call, Deadline deadline) {
  if (!look_) return messenger_->wait(call.message, deadline);
  Duration pause = kStall;
  if (messenger_->waits_again()) {
    for (;;) {
      const bool last = deadline.remaining() <= pause;
      const auto outcome = messenger_->wait(call.message, last ? deadline : Deadline::after(pause));
      if (outcome != Messenger::Outcome::late || last) return outcome;
      look_();
      pause = kLookEvery;
    }
  }
  const auto start = Clock::now();
  Deadline look = Deadline::after(pause);
  for (int turn = 0; !messenger_->is_settled(call.message) && !deadline.expired(); ++turn) {
    if (turn < 1000) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::clamp<Duration>(
        (Clock::now() - start) / 100, std::chrono::microseconds(20), std::chrono::milliseconds(1)));
    if (!look.expired()) continue;
    look_();
    look = Deadline::after(kLookEvery);
  }
  return messenger_->wait(call.message, deadline);
}

void GlooBackend::wait_for_message(Posted& call, Duration timeout) {
  Messenger::Outcome outcome;
  const auto start = Clock::now();
  try {
    outcome = wait_and_look(call, Deadline::after(timeout));
  } catch (const MessageLost& e) {
    fail_now(diagnose(e, text_of(call)));
  }
  if (outcome == Messenger::Outcome::complete) return;
  if (outcome == Messenger::Outcome::late)
    fail_now({Failure::Kind::timeout, call.peer < 0 ? -1 : world_rank(call.peer),
              fmt::format("{} did not complete within {:.3g} s of rank {}{}. {}", text_of(call),
                          seconds_since(start), rank(), candidates(call), kAdvice)});
  check_usable();
}

std::string GlooBackend::candidates(const Posted& call) {
  if (call.peer != kAnySource) return "";
  const auto said = words();
  std::string text;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto at = said.find(r);
    text += fmt::format("{}rank {} {}", text.empty() ? " (" : "; ", r, last_words(at, said));
  }
  return text + ")";
}

void GlooBackend::wait_for_collective(const std::shared_ptr<Posted>& call, Duration timeout) {
  const auto start = Clock::now();
  const Deadline deadline = Deadline::after(timeout);
  Duration pause = std::min<Duration>(kStall, timeout / 3);
  Deadline look = Deadline::after(pause);
  Deadline stall_look = look_ ? Deadline::after(kStall) : Deadline::never();
  bool said = false;
  for (;;) {
    const bool move = others_move();
    std::unique_lock lock(mutex_);
    const Duration next =
        std::min({look.remaining(), deadline.remaining(), stall_look.remaining()});
    done_.wait_for(lock, move ? std::min(next, kMoveEvery) : next,
                   [&] { return call->finished || failure_; });
    if (call->finished) return;
    if (failure_) std::rethrow_exception(failure_);
    const bool turn_to_look = stall_look.expired();
    if (turn_to_look) {
      lock.unlock();
      look_();
      stall_look = Deadline::after(kLookEvery);
      lock.lock();
    }
    if ((move || turn_to_look) && !look.expired() && !deadline.expired()) continue;
    const auto stuck = running_ ? running_ : queue_.empty() ? call : queue_.front();
    lock.unlock();
    if (!said) {
      said = true;
      world_->watch->say(
          group_, fmt::format("{} {} {}", stuck->seq, stuck->what.digest(), stuck->what.text()));
    } else if (auto desync = compare_words(*stuck)) {
      fail_now(*desync);
    } else {
      pause *= 2;
    }
    if (deadline.expired()) fail_now(timed_out(*stuck, seconds_since(start)));
    look = Deadline::after(pause);
  }
}

std::map<int, GlooBackend::Words> GlooBackend::words() {
  const auto all = world_->watch->words(group_, world_ranks_);
  std::map<int, Words> out;
  for (int r = 0; r < size(); ++r) {
    const auto at = all.find(world_rank(r));
    if (at == all.end()) continue;
    char* rest = nullptr;
    Words& w = out[r];
    w.seq = std::strtoull(at->second.c_str(), &rest, 10);
    w.digest = std::strtoull(rest, &rest, 10);
    w.text = rest + (*rest == ' ');
  }
  return out;
}

std::string GlooBackend::last_words(std::map<int, Words>::const_iterator at,
                                    const std::map<int, Words>& said) {
  return at == said.end()
             ? "has said nothing"
             : fmt::format("waited last in call {}, {}", at->second.seq, at->second.text);
}

std::optional<Failure> GlooBackend::compare_words(const Posted& call) {
  for (auto& [r, theirs] : words()) {
    if (theirs.seq != call.seq || theirs.digest == call.what.digest()) continue;
    const bool first = rank() < r;
    return Failure{
        Failure::Kind::mismatch, world_rank(r),
        fmt::format("call {}: rank {} called {}, but rank {} called {}. Every rank must make "
                    "the same calls in the same order",
                    call.seq, first ? rank() : r, first ? call.what.text() : theirs.text,
                    first ? r : rank(), first ? theirs.text : call.what.text())};
  }
  return std::nullopt;
}

Failure GlooBackend::timed_out(const Posted& call, double seconds) {
  if (auto desync = compare_words(call)) return *desync;
  const auto said = words();
  if (const std::string silence = world_->watch->silence(); !silence.empty())
    return {Failure::Kind::timeout, -1,
            fmt::format("call {}, {}: no result within {:.3g} s of rank {}. {}", call.seq,
                        call.what.text(), seconds, rank(), silence)};
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    const auto at = said.find(r);
    if (r != rank() && (at == said.end() || at->second.seq < call.seq)) missing.push_back(r);
  }
  forget_those_in_vain(missing);
  std::string last;
  for (int r : missing)
    last +=
        fmt::format("{}rank {} {}", last.empty() ? "" : "; ", r, last_words(said.find(r), said));
  if (missing.empty())
    return {Failure::Kind::timeout, -1,
            fmt::format("call {}, {}: the ranks did not get through within {:.3g} s of rank {}. "
                        "{}",
                        call.seq, call.what.text(), seconds, rank(), kAdvice)};
  return {
      Failure::Kind::timeout, world_rank(missing[0]),
      fmt::format("call {}, {}: rank {} did not arrive within {:.3g} s of rank {} ({}). {}",
                  call.seq, call.what.text(), name_ranks(missing), seconds, rank(), last, kAdvice)};
}

}  // namespace trireme::detail
