// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/check_hash.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/desync/comparing_backend.h"
#include "trireme/comm/desync/message_history.h"

namespace trireme::detail {
namespace {

class HashChecked final : public ComparingBackend {
 public:
  HashChecked(std::shared_ptr<Backend> inner, const std::string& group,
              std::shared_ptr<StallWatch> stalls, std::vector<int> board_ranks)
      : ComparingBackend(std::move(inner), group, std::move(board_ranks)),
        stalls_(std::move(stalls)) {
    if (stalls_ && (size() == 1 || !inner_->on_stall([this] { look_at_stall(); }))) stalls_.reset();
    if (stalls_)
      stalls_->join(this, {group_, [this] { return so_far(); }, [this] { return caller_.load(); },
                           [this](const auto& why) { abort(why, AbortKind::mismatch); }});
  }
  ~HashChecked() override {
    if (!stalls_) return;
    inner_->on_stall({});
    stalls_->leave(this, in_order(), calls_.recent());
  }

  void wait(Token token, Duration timeout) override {
    if (stalls_)
      wait_watched(token, timeout);
    else
      inner_->wait(token, timeout);
  }
  void abort(const std::string& why, AbortKind kind) override {
    const bool by_its_user = caller_.load() == std::this_thread::get_id();
    failed_ = true;
    if (stalls_ && by_its_user && inner_->mixes_up_calls() && !std::exchange(compared_, true))
      stalls_->compare_at_failure(group_,
                                  calls_.recent());  // so that no rank waits for this record
    ComparingBackend::abort(why, kind);
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& group) override {
    makes_ = group;
    stalled_since_.reset();
    auto made = posted([&] { return inner_->subgroup(members, group); });
    makes_.clear();
    if (stalls_) stalls_->goes_on();
    return check_hash(std::move(made), group, stalls_, board_ranks_of(members));
  }

 protected:
  void counted(const Call& call) override {
    caller_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    if (size() > 1 && calls_.count() % CallHistory::kKept == 0) compare_hashes();
    if (stalls_ && call.op == Collective::all_to_all)
      calls_.add_parts(*call.input_counts, *call.output_counts);
  }
  void message_posted(const Call& call, Token token) override {
    if (!stalls_) return;
    caller_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    messages_.add(call.op == Collective::send ? WaitKind::send : WaitKind::recv, token,
                  words_of(call), call.site,
                  call.root == kAnySource ? kAnySource : board_rank(call.root));
  }
  void wait_for_others(Token token) override {
    if (!stalls_) return inner_->wait(token, timeout());
    compares_ = true;
    wait_watched(token, timeout());
    compares_ = false;
  }
  /// A call failed on this rank, or on another that reported it: the calls may differ.
  void look_at_failure(const Error& error) override {
    const bool may_be = dynamic_cast<const Mismatch*>(&error) ||
                        dynamic_cast<const PeerLost*>(&error) ||
                        dynamic_cast<const Aborted*>(&error);
    if (!may_be || !stalls_ || !inner_->mixes_up_calls() || std::exchange(compared_, true)) return;
    const RecentCalls mine = calls_.recent();
    // The others see the failure in their waits.
    for (const Deadline until = Deadline::after(std::chrono::milliseconds(1500));;) {
      const auto said = stalls_->compare_at_failure(group_, mine);
      refuse_difference(mine, said);
      const bool all =
          !said.empty() && std::all_of(board_ranks_.begin(), board_ranks_.end(), [&](int r) {
            return r == board_rank(rank()) || said[static_cast<size_t>(r)].has_value();
          });
      if (all || said.empty() || until.expired()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void end_others(const std::string& text) override {
    if (stalls_) stalls_->end_all(text);
  }

 private:
  void compare_hashes() {
    if (stalls_) stalls_->sweep();
    // Every rank sees the same numbers, so either all of them go on to compare the calls or none
    // does.
    const uint64_t hash = calls_.hash();
    const auto hashes = exchange(&hash, sizeof hash);
    for (int r = 1; r < size(); ++r)
      if (std::memcmp(hashes.data(), hashes.data() + static_cast<size_t>(r) * sizeof hash,
                      sizeof hash) != 0)
        return compare(calls_.all(), CallHistory::kKept);
  }

  void wait_watched(Token token, Duration timeout) {
    const Token outer = std::exchange(waits_, token);
    const Duration outer_limit = std::exchange(limit_, timeout);
    const bool had_failed = std::exchange(failed_, true);  // until it has succeeded
    stalled_since_.reset();
    try {
      inner_->wait(token, timeout);
    } catch (const Error& e) {
      look_at_failure(e);
      // Ranks of other groups may be waiting for this rank.
      if (dynamic_cast<const Mismatch*>(&e)) stalls_->end_all(e.what());
      throw;
    }
    failed_ = had_failed;
    waits_ = outer;
    limit_ = outer_limit;
    stalls_->goes_on();
  }

  /// What this rank has called here, for the others.
  GroupCalls so_far() {
    GroupCalls all = messages_.counts();
    all.calls = calls_.count();
    return all;
  }

  /// What this rank waits for; WaitKind::none if it is none of the latest calls here.
  Waiting what_makes_wait() {
    const uint64_t number = compares_ ? calls_.count() : calls_.number_of(waits_);
    if (number) {
      Waiting w{WaitKind::collective, group_, board_ranks_, number, 0, calls_.text(number), 0};
      const auto* parts = compares_ ? nullptr : calls_.parts_of(number);
      if (parts) w.sends = parts->sends, w.expects = parts->expects;
      return w;
    }
    if (const PostedMessage* m = messages_.find(waits_)) return m->waiting(group_);
    return {WaitKind::none,
            group_,
            {},
            0,
            0,
            makes_.empty() ? "a call of group " + group_ : "making group " + makes_,
            0};
  }

  /// This rank has waited for a second, perhaps for a call that others did not make.
  void look_at_stall() {
    const auto now = Clock::now();
    if (!stalled_since_) stalled_since_ = now - std::chrono::seconds(1);
    const Duration waited = now - *stalled_since_,
                   left = makes_.empty() ? limit_ - waited : timeout() - waited;
    const RecentCalls mine = calls_.recent();
    const Waiting what = what_makes_wait();
    const auto seen = stalls_->look(what, group_, mine, waited, left);
    if (!seen.mismatch.empty())
      mismatch(seen.mismatch, what.ranks.size() == 1 ? what.ranks.front() : -1);
    refuse_difference(mine, seen.recent);
  }

  /// said: by rank of the board; empty if nothing was received.
  void refuse_difference(const RecentCalls& mine,
                         const std::vector<std::optional<RecentCalls>>& said) {
    if (said.empty()) return;
    for (int r = 0; r < size(); ++r) {
      const auto& theirs = said[static_cast<size_t>(board_rank(r))];
      if (r == rank() || !theirs) continue;
      const auto number = first_difference(mine, *theirs);
      if (!number) continue;
      const std::string own = text_of(calls_.at(*number)), text = theirs->text(*number),
                        other = text.empty() ? "another collective" : text;
      if (rank() < r)
        refuse(*number, rank(), own, r, other);
      else
        refuse(*number, r, other, rank(), own);
    }
  }

  std::shared_ptr<StallWatch> stalls_;
  std::atomic<std::thread::id> caller_{};  // of the last call
  bool compared_ = false;                  // with what the others called, after a failure
  MessageHistory messages_;
  Token waits_{};          // what wait() waits for
  bool compares_ = false;  // waiting for the others' hashes
  Duration limit_{};
  std::string makes_;  // the group being made of this one
  std::optional<Clock::time_point> stalled_since_;
};

}  // namespace

std::shared_ptr<Backend> check_hash(std::shared_ptr<Backend> inner, const std::string& group,
                                    std::shared_ptr<StallWatch> stalls,
                                    std::vector<int> board_ranks) {
  return std::make_shared<HashChecked>(std::move(inner), group, std::move(stalls),
                                       std::move(board_ranks));
}

}  // namespace trireme::detail
