// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/check_each.h"

#include <cstring>
#include <map>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/desync/comparing_backend.h"
#include "trireme/comm/desync/message_history.h"

namespace trireme::detail {
namespace {

class EachCallChecked final : public ComparingBackend {
 public:
  EachCallChecked(std::shared_ptr<Backend> inner, const std::string& group,
                  std::shared_ptr<WaitWatch> watch, std::vector<int> board_ranks)
      : ComparingBackend(std::move(inner), group, std::move(board_ranks)),
        watch_(std::move(watch)) {
    if (watch_) watch_->join(this, [this](const auto& why) { abort(why, AbortKind::mismatch); });
  }
  ~EachCallChecked() override {
    if (!watch_) return;
    watch_->leave(this);
    if (in_order()) watch_->left(group_);
  }

  void wait(Token token, Duration timeout) override {
    const auto at = open_.find(key(token));
    if (at == open_.end()) return inner_->wait(token, timeout);
    const Waiting what = std::move(at->second);
    open_.erase(at);
    // The backend has its own error for a late message.
    if (!await(what, token, timeout, false)) inner_->wait(token, Duration::zero());
  }
  bool completed(Token token) override {
    const bool yes = ComparingBackend::completed(token);
    if (yes && watch_) open_.erase(key(token));
    return yes;
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& group) override {
    auto made = posted([&] { return inner_->subgroup(members, group); });
    return check_each(std::move(made), group, watch_, board_ranks_of(members));
  }

 protected:
  void counted(const Call& call) override {
    if (watch_) watch_->called(group_, calls_.count());
    if (size() == 1) return;
    compare(&calls_.at(calls_.count()), 1);
    if (call.op == Collective::all_to_all) compare_parts(*call.output_counts, *call.input_counts);
  }
  void message_posted(const Call& call, Token token) override {
    if (!watch_) return;
    if (call.root == kAnySource) return watch_->posted_any_source(group_, call.tag);
    const WaitKind kind = call.op == Collective::send ? WaitKind::send : WaitKind::recv;
    const int peer = board_rank(call.root);
    const PostedMessage m{
        token, kind, words_of(call), call.site, watch_->posted(group_, kind, peer, call.tag), peer};
    if (token.kind == 0) return;
    open_[key(token)] = m.waiting(group_);
    constexpr size_t kOpen = 65536;  // whose Works were dropped
    if (open_.size() > kOpen) open_.erase(open_.begin());
  }
  void wait_for_others(Token token) override {
    if (!watch_) return inner_->wait(token, timeout());
    const uint64_t number = calls_.count();
    await({WaitKind::collective, group_, board_ranks_, number, 0, calls_.text(number)}, token,
          timeout(), true);
  }
  void end_others(const std::string& text) override {
    if (watch_) watch_->end_all(text);
  }

 private:
  using Key = std::tuple<uint8_t, int32_t, uint64_t>;
  static Key key(Token t) { return {t.kind, t.peer, t.number}; }

  /// Compares what each rank sends to each other rank with what that rank expects.
  void compare_parts(const std::vector<int64_t>& output_counts,
                     const std::vector<int64_t>& input_counts) {
    const auto n = static_cast<size_t>(size());
    std::vector<int64_t> mine(input_counts);
    mine.insert(mine.end(), output_counts.begin(), output_counts.end());
    const auto bytes = exchange(mine.data(), mine.size() * sizeof(int64_t));
    const auto count = [&](size_t r, size_t i) {
      int64_t value;
      std::memcpy(&value, bytes.data() + (r * 2 * n + i) * sizeof value, sizeof value);
      return value;
    };
    for (size_t r = 0; r < n; ++r)
      for (size_t q = 0; q < n; ++q)
        if (count(r, q) != count(q, n + r))
          mismatch(fmt::format("{}: rank {} sends {} elements to rank {}, but rank {} expects {}. "
                               "Both ends of a pair must agree",
                               calls_.text(calls_.count()), r, count(r, q), q, q, count(q, n + r)),
                   static_cast<int>(r));
  }

  /// Returns false if the call is late; if `late_is_an_end`, the group has then ended.
  bool await(const Waiting& what, Token token, Duration timeout, bool late_is_an_end) {
    WaitWatch::Ended ended;
    try {
      ended = watch_->await(
          what, [&] { return token.kind == 0 || inner_->completed_with_progress(token); }, timeout);
    } catch (const Mismatch& e) {  // another rank found it first, or the backend saw a rank leave
      if (const auto left = watch_->who_left(what)) mismatch(*left, what.ranks.front());
      watch_->end_all(e.what());
      throw;
    }
    if (ended.outcome == WaitWatch::Outcome::done) return true;
    if (ended.outcome == WaitWatch::Outcome::mismatch) mismatch(ended.text, what.ranks.front());
    if (!late_is_an_end) return false;
    const std::string text = fmt::format(
        "{}: {}. Such a rank is stopped, slower than the timeout of the group, or has made other "
        "calls",
        what.text,
        ended.text.empty() ? fmt::format("the ranks did not get through within {:.3g} s",
                                         std::chrono::duration<double>(timeout).count())
                           : ended.text);
    abort(text, AbortKind::timeout);
    throw Timeout(text, {rank(), -1, "", static_cast<int64_t>(calls_.count())});
  }

  const std::shared_ptr<WaitWatch> watch_;
  std::map<Key, Waiting> open_;  // messages in flight
};

}  // namespace

std::shared_ptr<Backend> check_each(std::shared_ptr<Backend> inner, const std::string& group,
                                    std::shared_ptr<WaitWatch> watch,
                                    std::vector<int> board_ranks) {
  return std::make_shared<EachCallChecked>(std::move(inner), group, std::move(watch),
                                           std::move(board_ranks));
}

}  // namespace trireme::detail
