// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/stall_watch.h"

#include <algorithm>
#include <exception>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::detail {
namespace {

constexpr size_t kGroupsSaid = 4;  // a board takes records of some kilobytes
constexpr size_t kGroupsKept = 256;

}  // namespace

StallWatch::StallWatch(std::unique_ptr<WaitBoard> board)
    : board_(std::move(board)),
      look_every_(look_every(board_->size(), std::chrono::milliseconds(200))) {
  if (board_->speaks_at_exit())
    at_exit_ = std::make_unique<LeaveAtExit>([this] { leave_at_exit(); });
}

void StallWatch::leave_at_exit() {
  // Another thread that holds the lock now continues, or calls exit() itself.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !board_ || !speaks_for_all()) return;
  gather_own({});
  for (auto& [group, member] : members_) own_.groups[member.name].left = true;
  say();
}

void StallWatch::join(const void* group, Member member) {
  std::lock_guard lock(mutex_);
  members_[group] = std::move(member);
}

void StallWatch::leave(const void* group, bool in_order, const RecentCalls& recent) {
  std::lock_guard lock(mutex_);
  const auto at = members_.find(group);
  if (at == members_.end()) return;
  const std::string name = at->second.name;
  if (own_.groups.size() >= kGroupsKept)
    std::erase_if(own_.groups, [](const auto& g) { return g.second.left; });
  GroupCalls& calls = own_.groups[name] = at->second.calls();
  calls.left = in_order;
  members_.erase(at);
  if (!in_order || !board_) return;
  if (recent.last && ended_.size() < kGroupsKept) ended_[name] = recent;
  const bool last = members_.empty();
  try {
    if (last) compare_at_the_end();
    own_.waiting = {};
    keep_own(name, recent);  // ranks that wait for it in another call see that
    if (board_->outlives_ranks()) board_->say_leaving(encode(own_), last);
  } catch (const UsageError& e) {  // another thread is leaving
    log_debug("cannot announce that this rank leaves group {}: {}", name, e.what());
  } catch (const std::exception& e) {  // the rank that serves the board has left before
    log_debug("cannot announce that this rank leaves group {}: {}", name, e.what());
    board_.reset();
  }
}

// A call that differed need not make any rank wait: two roots that both send, or a sum on one rank
// and a maximum on another. The first rank that leaves keeps its calls, and each of the others
// compares.
void StallWatch::compare_at_the_end() {
  const char* advice =
      "No rank had to wait for another one because of it, so results may be wrong without an "
      "error; check \"each\" compares before every call";
  const auto words = [](const std::string& text) {
    return text.empty() ? "another collective" : text;
  };
  const int self = board_->rank();
  for (const auto& [group, recent] : ended_) {
    const std::string first =
        board_->first_to_say("ended/" + group, encode(std::pair(self, recent)));
    if (first.empty()) return;
    const auto [rank, theirs] = decode<std::pair<int, RecentCalls>>(first);
    if (rank == self || theirs.digests.size() > theirs.last) continue;
    if (const auto number = first_difference(recent, theirs))
      log_error(
          "group {} ended, and its ranks called different things: call {}: rank {} called {}, but "
          "rank {} called {}. {}",
          group, *number, rank, words(theirs.text(*number)), self, words(recent.text(*number)),
          advice);
    else if (recent.last != theirs.last)
      log_error(
          "group {} ended, and its ranks called different things: rank {} made {} collectives, but "
          "rank {} made {}. {}",
          group, rank, theirs.last, self, recent.last, advice);
  }
}

void StallWatch::end_all(const std::string& why) {
  std::vector<std::function<void(const std::string&)>> ends;
  {
    std::lock_guard lock(mutex_);
    if (!speaks_for_all()) return;  // another thread may be in a call of one
    for (auto& [group, member] : members_) ends.push_back(member.end);
  }
  for (auto& end : ends) end(why);
}

/// Whether the calling thread is the only one that uses groups of this rank.
bool StallWatch::speaks_for_all() const {
  const auto self = std::this_thread::get_id();
  return std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
    const auto caller = m.second.caller();
    return caller == std::thread::id() || caller == self;
  });
}

void StallWatch::gather_own(const Waiting& what) {
  for (auto& [group, member] : members_) own_.groups[member.name] = member.calls();
  own_.waiting = what;
}

void StallWatch::keep_own(const std::string& group, const RecentCalls& recent) {
  if (own_.recent.size() >= kGroupsSaid && !own_.recent.count(group)) own_.recent.clear();
  own_.recent[group] = recent;
}

std::vector<std::optional<RecentCalls>> StallWatch::recent_of(const WaitRecords& records,
                                                              const std::string& group) {
  std::vector<std::optional<RecentCalls>> all;
  for (const auto& record : records) {
    all.emplace_back();
    if (!record) continue;
    const auto theirs = record->recent.find(group);
    // Digests are those of the last calls, so there are no more of them than calls.
    if (theirs != record->recent.end() && theirs->second.digests.size() <= theirs->second.last)
      all.back() = theirs->second;
  }
  return all;
}

std::vector<std::optional<RecentCalls>> StallWatch::compare_at_failure(const std::string& group,
                                                                       const RecentCalls& recent) {
  std::lock_guard lock(mutex_);
  if (!board_) return {};
  try {
    gather_own(own_.waiting);  // others may not have seen yet that it closes a cycle
    keep_own(group, recent);
    say();
    return recent_of(heard(), group);
  } catch (const std::exception& e) {
    log_debug("ranks can no longer compare their calls: {}", e.what());
    board_.reset();
    return {};
  }
}

void StallWatch::say() {
  std::string bytes = encode(own_);
  if (bytes == said_) return;
  board_->say(bytes);
  said_ = std::move(bytes);
}

void StallWatch::say_free() {
  std::lock_guard lock(mutex_);
  said_waiting_ = false;
  reported_ = false;
  next_look_ = {};
  if (!board_ || !board_->outlives_ranks()) return;
  try {
    gather_own({});
    say();
  } catch (const std::exception& e) {
    log_debug("ranks can no longer report what they wait for: {}", e.what());
    board_.reset();
  }
}

WaitRecords StallWatch::heard() {
  WaitRecords records;
  for (const std::string& bytes : board_->heard()) {
    records.emplace_back();
    if (!bytes.empty()) records.back() = decode<WaitRecord>(bytes);
  }
  records[static_cast<size_t>(board_->rank())] = own_;
  return records;
}

void StallWatch::report(const std::string& text) {
  reported_ = true;
  if (!text.empty()) log_warn("{}", text);
}

StallWatch::Seen StallWatch::look(const Waiting& what, const std::string& group,
                                  const RecentCalls& recent, Duration waited, Duration left) {
  std::lock_guard lock(mutex_);
  Seen seen;
  const auto now = Clock::now();
  if (said_waiting_ && now < next_look_) return seen;
  said_waiting_ = true;
  const bool tell = waited >= kReportAfter && !reported_;
  if (!board_) {
    if (tell) report(alone_text(what, waited, left));
    return seen;
  }
  WaitRecords records;
  try {
    const bool speaks = speaks_for_all();
    Waiting words;  // of a rank whose other threads continue: it waits for none
    words.text = what.text + ", and other threads of it go on";
    gather_own(speaks ? what : words);
    keep_own(group, recent);
    say();
    records = heard();
    own_.waiting = what;  // for this rank's own report
    records[static_cast<size_t>(board_->rank())]->waiting = what;
    const int self = board_->rank();
    seen.recent = recent_of(records, group);
    if (speaks && what.kind != WaitKind::none)
      for (auto& text : {find_wrong_message(records, self), find_circle(records, self),
                         find_left(records, self)})
        if (text && seen.mismatch.empty()) seen.mismatch = *text;
    if (tell && seen.mismatch.empty())
      report(is_first_to_wait(records, self) ? late_text(records, self, waited, left) : "");
  } catch (
      const std::exception& e) {  // its server has left or is gone, which is reported elsewhere
    log_debug("ranks can no longer compare what they wait for: {}", e.what());
    board_.reset();
    if (tell) report(alone_text(what, waited, left));
  }
  next_look_ = Clock::now() + look_every_;
  return seen;
}

void StallWatch::sweep() {
  std::lock_guard lock(mutex_);
  if (board_) board_->sweep();
}

}  // namespace trireme::detail
