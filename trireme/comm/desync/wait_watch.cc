// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/wait_watch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rendezvous/join.h"

namespace trireme::detail {
namespace {

constexpr Duration kSayAfter = std::chrono::seconds(1);

}  // namespace

WaitWatch::WaitWatch(std::unique_ptr<WaitBoard> board)
    : board_(std::move(board)),
      look_every_(look_every(board_->size(), std::chrono::milliseconds(50))) {
  if (board_->speaks_at_exit())
    at_exit_ = std::make_unique<LeaveAtExit>([this] { leave_at_exit(); });
}

void WaitWatch::leave_at_exit() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || board_gone_ || !speaks_for_all()) return;
  for (auto& [name, calls] : own_.groups) calls.left = true;
  say({});
}

GroupCalls& WaitWatch::of(const std::string& group) {
  const auto caller = std::this_thread::get_id();
  callers_[group] = caller;
  at_once_ = at_once_ || (waiting_ != std::thread::id() && waiting_ != caller);
  return own_.groups[group];
}

/// Whether the calling thread is the only one that uses groups of this rank.
bool WaitWatch::speaks_for_all() const {
  const auto self = std::this_thread::get_id();
  return !at_once_ && std::all_of(callers_.begin(), callers_.end(),
                                  [&](const auto& c) { return c.second == self; });
}

void WaitWatch::join(const void* group, std::function<void(const std::string&)> end) {
  std::lock_guard lock(mutex_);
  ends_[group] = std::move(end);
}

void WaitWatch::leave(const void* group) {
  std::lock_guard lock(mutex_);
  ends_.erase(group);
}

void WaitWatch::end_all(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (!speaks_for_all()) return;  // another thread may be in a call of one
  }
  for (auto& [group, end] : ends_) end(why);
}

void WaitWatch::called(const std::string& group, uint64_t number) {
  std::lock_guard lock(mutex_);
  of(group).calls = number;
}

uint64_t WaitWatch::posted(const std::string& group, WaitKind kind, int peer, int tag) {
  std::lock_guard lock(mutex_);
  GroupCalls& calls = of(group);
  auto& [to, from] = calls.messages[{peer, tag}];
  const uint64_t number = kind == WaitKind::send ? ++to : ++from;
  if (calls.messages.size() > kMessagesKept) {
    calls.messages.clear();
    calls.all_messages = false;
  }
  return number;
}

void WaitWatch::posted_any_source(const std::string& group, int tag) {
  std::lock_guard lock(mutex_);
  of(group).any_source_tags.insert(tag);
}

void WaitWatch::left(const std::string& group) {
  std::lock_guard lock(mutex_);
  own_.groups[group].left = true;
  callers_.erase(group);
  if (!board_->outlives_ranks()) return;
  try {
    say({});
  } catch (const std::exception& e) {  // the rank that serves the board has left before
    log_debug("cannot announce that this rank leaves group {}: {}", group, e.what());
  }
}

void WaitWatch::say(const Waiting& what) {
  own_.waiting = what;
  board_->say(encode(own_));
}

WaitRecords WaitWatch::heard() {
  WaitRecords records;
  for (const std::string& bytes : board_->heard()) {
    records.emplace_back();
    if (!bytes.empty()) records.back() = decode<WaitRecord>(bytes);
  }
  records[static_cast<size_t>(board_->rank())] = own_;
  return records;
}

std::string WaitWatch::text_of_absent(const WaitRecords& records, Duration waited) const {
  const std::vector<int> absent = find_absent(records, board_->rank());
  if (absent.empty()) return "";
  std::string text =
      fmt::format("rank {} did not come within {:.3g} s of rank {}", name_ranks(absent),
                  std::chrono::duration<double>(waited).count(), board_->rank());
  constexpr size_t kNamed = 3;
  for (size_t i = 0; i < std::min(absent.size(), kNamed); ++i)
    if (const auto& record = records[static_cast<size_t>(absent[i])];
        record && record->waiting.kind != WaitKind::none)
      text += fmt::format("; rank {} was last seen waiting in {}", absent[i], record->waiting.text);
  return text;
}

std::optional<WaitWatch::Ended> WaitWatch::look(const Waiting& what, bool said, bool late,
                                                Duration waited, Duration left) {
  std::lock_guard lock(mutex_);
  if (!speaks_for_all() || board_gone_) {
    if (late) return Ended{Outcome::late, ""};
    return std::nullopt;
  }
  WaitRecords records;
  try {
    if (!said) say(what);
    records = heard();
  } catch (
      const std::exception& e) {  // its server has left or is gone, which is reported elsewhere
    log_debug("ranks can no longer report what they wait for: {}", e.what());
    board_gone_ = true;
    if (late) return Ended{Outcome::late, ""};
    return std::nullopt;
  }
  for (auto& text : {find_wrong_message(records, board_->rank()),
                     find_circle(records, board_->rank()), find_left(records, board_->rank())})
    if (text) return Ended{Outcome::mismatch, *text};
  if (late) return Ended{Outcome::late, text_of_absent(records, waited)};
  if (waited >= kReportAfter && !std::exchange(reported_, true) &&
      is_first_to_wait(records, board_->rank()))
    log_warn("{}", late_text(records, board_->rank(), waited, left));
  return std::nullopt;
}

std::optional<std::string> WaitWatch::who_left(const Waiting& what) {
  std::lock_guard lock(mutex_);
  if (board_gone_) return std::nullopt;
  try {
    own_.waiting = what;
    return find_left(heard(), board_->rank());
  } catch (const std::exception&) {  // then only the backend's error is left
    return std::nullopt;
  }
}

WaitWatch::Ended WaitWatch::await(const Waiting& what, const std::function<bool()>& done,
                                  Duration timeout) {
  const auto start = Clock::now();
  const Deadline deadline = Deadline::after(timeout);
  Deadline next_look = Deadline::after(std::min<Duration>(kSayAfter, timeout / 3));
  bool said = false;
  struct InWait {
    WaitWatch& watch;
    explicit InWait(WaitWatch& w) : watch(w) {
      std::lock_guard lock(watch.mutex_);
      watch.waiting_ = std::this_thread::get_id();
      watch.reported_ = false;
    }
    ~InWait() {
      std::lock_guard lock(watch.mutex_);
      watch.waiting_ = {};
    }
  } in_wait(*this);
  for (int round = 0; !done(); ++round) {
    constexpr int kSpins = 200;
    if (round < kSpins) {
      ::sched_yield();
      continue;
    }
    ::usleep(round < 2 * kSpins ? 20 : 200);
    const bool late = deadline.expired();
    if (!late && !next_look.expired()) continue;
    const auto ended = look(what, said, late, Clock::now() - start, deadline.remaining());
    if (ended && !done()) return *ended;
    said = true;
    next_look = Deadline::after(look_every_);
  }
  return {};
}

}  // namespace trireme::detail
