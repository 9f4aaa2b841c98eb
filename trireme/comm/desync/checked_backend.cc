// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/checked_backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/desync/stall_watch.h"
#include "trireme/comm/desync/wait_watch.h"
#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/forwarding_backend.h"

namespace trireme::detail {
namespace {

using flight::CallWords;

constexpr size_t kEach = 64;   // collectives between two comparisons of hashes
constexpr size_t kTexts = 16;  // of them, whose words a rank that is stuck tells

/// A call as ranks tell it to each other.
struct Told {
  uint64_t seq, digest, count;
  int32_t root;
  uint8_t op, dtype, red, spare;
  char site[96];  // the end of file:line
};
static_assert(sizeof(Told) == 128);

Told tell(uint64_t seq, const CallWords& w, CallSite at) {
  Told t{};
  t.seq = seq;
  t.count = w.count;
  t.root = w.root;
  t.op = static_cast<uint8_t>(w.op);
  t.dtype = static_cast<uint8_t>(w.dtype);
  t.red = static_cast<uint8_t>(w.red);
  // Parts of an all_to_all may be as uneven as they like.
  t.digest = stable_hash({seq, t.op, t.dtype, t.red, static_cast<uint32_t>(t.root),
                          facts_of(w.op).is_uneven ? 0 : w.count});
  const std::string site =
      at.file && *at.file ? fmt::format("{}:{}", at.file, at.line) : std::string();
  const size_t skip = site.size() < sizeof t.site ? 0 : site.size() - sizeof t.site + 1;
  std::memcpy(t.site, site.c_str() + skip, site.size() - skip);
  return t;
}

std::string text_of(const Told& t) {
  const std::string site(t.site, ::strnlen(t.site, sizeof t.site));
  return flight::call_text(static_cast<Collective>(t.op), static_cast<flight::DType>(t.dtype),
                           static_cast<ReduceOp>(t.red), t.root, t.count) +
         (site.empty() ? "" : " at " + site);
}

class CheckedBackend final : public ForwardingBackend {
 public:
  /// board_ranks: this group's ranks as ranks of the watch's board.
  CheckedBackend(std::shared_ptr<Backend> inner, bool each, const std::string& group,
                 std::shared_ptr<WaitWatch> watch, std::shared_ptr<StallWatch> stalls,
                 std::vector<int> board_ranks)
      : ForwardingBackend(std::move(inner)),
        group_(group),
        each_(each),
        last_(each ? 1 : kEach),
        watch_(std::move(watch)),
        board_ranks_(std::move(board_ranks)),
        stalls_(std::move(stalls)) {
    if (stalls_ && (size() == 1 || !inner_->on_stall([this] { look_at_stall(); }))) stalls_.reset();
    if (stalls_)
      stalls_->join(this, {group_, [this] { return so_far(); }, [this] { return caller_.load(); },
                           [this](const auto& why) { abort(why, AbortKind::mismatch); }});
    if (watch_) watch_->join(this, [this](const auto& why) { abort(why, AbortKind::mismatch); });
  }
  ~CheckedBackend() override {
    const bool in_order = !failed_ && std::uncaught_exceptions() == 0;
    if (stalls_) {
      inner_->on_stall({});
      stalls_->leave(this, in_order, recent());
    }
    if (!watch_) return;
    watch_->leave(this);
    if (in_order) watch_->left(group_);
  }

  Token post(const Call& call) override {
    const CallWords words = words_of(call);
    if (call.facts().is_message)
      return message(call.op == Collective::send ? WaitKind::send : WaitKind::recv,
                     posted([&] { return inner_->post(call); }), words, call.site);
    note(words, call.site, call.counted() ? call.counted()->device() : device_);
    if (call.op == Collective::all_to_all) {
      if (each_ && size() > 1) compare_parts(*call.output_counts, *call.input_counts);
      if (stalls_)
        parts_[++parts_count_ % kParts] = {calls_, *call.input_counts, *call.output_counts};
    }
    const Token token = posted([&] { return inner_->post(call); });
    if (stalls_) tokens_[(calls_ - 1) % kEach] = token;
    return token;
  }
  void wait(Token token, Duration timeout) override {
    if (stalls_) return wait_watched(token, timeout);
    const auto at = open_.find(key(token));
    if (at == open_.end()) return inner_->wait(token, timeout);
    const Waiting what = std::move(at->second);
    open_.erase(at);
    // The backend has words of its own for a message that is late.
    if (!await(what, token, timeout, false)) inner_->wait(token, Duration::zero());
  }
  bool completed(Token token) override {
    const bool had_failed = std::exchange(failed_, true);
    const bool yes = inner_->completed(token);
    failed_ = had_failed;
    if (yes && watch_) open_.erase(key(token));
    return yes;
  }
  void abort(const std::string& why, AbortKind kind) override {
    failed_ = true;
    const bool by_its_user = caller_.load() == std::this_thread::get_id();
    if (stalls_ && by_its_user && inner_->mixes_up_calls() && !std::exchange(compared_, true))
      stalls_->compare_at_failure(group_, recent());  // so that nobody waits for these words
    inner_->abort(why, kind);
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& group) override {
    std::vector<int> board_ranks;
    if (watch_ || stalls_)
      for (int m : members) board_ranks.push_back(board_ranks_[static_cast<size_t>(m)]);
    makes_ = group;
    stalled_since_.reset();
    auto made = posted([&] { return inner_->subgroup(members, group); });
    makes_.clear();
    if (stalls_) stalls_->goes_on();
    return std::make_shared<CheckedBackend>(std::move(made), each_, group, watch_, stalls_,
                                            std::move(board_ranks));
  }

 private:
  void note(const CallWords& words, CallSite site, at::Device device) {
    device_ = device;
    site_ = site;
    Told& t = told_[calls_ % kEach];
    t = tell(++calls_, words, site);
    hash_ = mix64(hash_ ^ t.digest);
    caller_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    if (watch_) watch_->called(group_, calls_);
    if (size() == 1 || calls_ % last_ != 0) return;
    if (each_) return compare(&t, 1);
    if (stalls_) stalls_->sweep();
    // Every rank sees the same numbers, so all of them go on to the calls, or none does.
    const auto hashes = exchange(&hash_, sizeof hash_);
    for (int r = 1; r < size(); ++r)
      if (std::memcmp(hashes.data(), hashes.data() + static_cast<size_t>(r) * sizeof hash_,
                      sizeof hash_) != 0)
        return compare(told_, kEach);
  }

  /// The first of these calls that differs is the end.
  void compare(const Told* mine, size_t count) {
    const auto all = exchange(mine, count * sizeof(Told));
    auto of = [&](int r, size_t i) {
      Told t;
      std::memcpy(&t, all.data() + (static_cast<size_t>(r) * count + i) * sizeof t, sizeof t);
      return t;
    };
    for (size_t i = 0; i < count; ++i) {
      const Told first = of(0, i);
      for (int r = 1; r < size(); ++r) {
        const Told other = of(r, i);
        if (other.digest == first.digest) continue;
        mismatch(fmt::format("call {} of group {}: rank 0 called {}, but rank {} called {}. Every "
                             "rank must make the same calls in the same order",
                             first.seq, group_, text_of(first), r, text_of(other)),
                 r);
      }
    }
  }

  /// A call that throws finishes the group, and what ranks called need not agree any more.
  template <class Post>
  std::invoke_result_t<const Post&> posted(const Post& post) {
    const bool had_failed = std::exchange(failed_, true);
    try {
      auto made = post();
      failed_ = had_failed;
      return made;
    } catch (const Error& e) {
      look_at_failure(e);
      throw;
    }
  }

  void wait_watched(Token token, Duration timeout) {
    const Token outer = std::exchange(waits_, token);
    const Duration outer_limit = std::exchange(limit_, timeout);
    const bool had_failed = std::exchange(failed_, true);  // until it is through
    stalled_since_.reset();
    try {
      inner_->wait(token, timeout);
    } catch (const Error& e) {
      look_at_failure(e);
      // Ranks of other groups may wait for this one.
      if (dynamic_cast<const Mismatch*>(&e)) stalls_->end_all(e.what());
      throw;
    }
    failed_ = had_failed;
    waits_ = outer;
    limit_ = outer_limit;
    stalls_->goes_on();
  }

  /// For the others: what this rank called here.
  GroupCalls so_far() {
    std::lock_guard lock(messages_mutex_);
    GroupCalls all = messages_;
    all.calls = calls_;
    return all;
  }

  RecentCalls recent() const {
    const uint64_t calls = calls_, kept = std::min<uint64_t>(calls, kEach);
    RecentCalls mine{calls, {}, {}};
    for (uint64_t n = calls - kept + 1; n <= calls; ++n) {
      const Told& t = told_[(n - 1) % kEach];
      mine.digests.push_back(t.digest);
      if (calls - n < kTexts) mine.texts.push_back(text_of(t));
    }
    return mine;
  }

  std::string text_of_call(uint64_t number) const {
    return fmt::format("call {} of group {}, {}", number, group_,
                       text_of(told_[(number - 1) % kEach]));
  }

  /// What makes this rank wait; of no kind where that is none of the latest calls here.
  Waiting what_makes_wait() {
    const auto is_it = [&](Token t) { return t.kind && key(t) == key(waits_); };
    const uint64_t calls = calls_;
    if (compares_)
      return {WaitKind::collective, group_, board_ranks_, calls, 0, text_of_call(calls), 0};
    for (uint64_t n = calls; n > 0 && calls - n < kEach; --n)
      if (is_it(tokens_[(n - 1) % kEach])) {
        Waiting w{WaitKind::collective, group_, board_ranks_, n, 0, text_of_call(n), 0};
        for (const Parts& p : parts_)
          if (p.number == n) w.sends = p.sends, w.expects = p.expects;
        return w;
      }
    for (const Message& m : sent_)
      if (is_it(m.token)) return m.waiting(*this);
    return {WaitKind::none,
            group_,
            {},
            0,
            0,
            makes_.empty() ? "a call of group " + group_ : "making group " + makes_,
            0};
  }

  /// This rank waits since a second: perhaps for a call that others did not make.
  void look_at_stall() {
    const auto now = Clock::now();
    if (!stalled_since_) stalled_since_ = now - std::chrono::seconds(1);
    const Duration waited = now - *stalled_since_,
                   left = makes_.empty() ? limit_ - waited : timeout() - waited;
    const RecentCalls mine = recent();
    const Waiting what = what_makes_wait();
    const auto seen = stalls_->look(what, group_, mine, waited, left);
    if (!seen.mismatch.empty())
      mismatch(seen.mismatch, what.ranks.size() == 1 ? what.ranks.front() : -1);
    refuse_difference(mine, seen.recent);
  }

  /// A call failed on this rank, or on another one that told of it: perhaps they are not the same.
  void look_at_failure(const Error& error) {
    const bool may_be = dynamic_cast<const Mismatch*>(&error) ||
                        dynamic_cast<const PeerLost*>(&error) ||
                        dynamic_cast<const Aborted*>(&error);
    if (!may_be || !stalls_ || !inner_->mixes_up_calls() || std::exchange(compared_, true)) return;
    const RecentCalls mine = recent();
    // The others hear of the failure where they wait.
    for (const Deadline until = Deadline::after(std::chrono::milliseconds(1500));;) {
      const auto said = stalls_->compare_at_failure(group_, mine);
      refuse_difference(mine, said);
      const bool all =
          !said.empty() && std::all_of(board_ranks_.begin(), board_ranks_.end(), [&](int r) {
            return r == board_ranks_[static_cast<size_t>(rank())] ||
                   said[static_cast<size_t>(r)].has_value();
          });
      if (all || said.empty() || until.expired()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  /// said: by rank of the board; empty: nothing is heard.
  void refuse_difference(const RecentCalls& mine,
                         const std::vector<std::optional<RecentCalls>>& said) {
    if (said.empty()) return;
    for (int r = 0; r < size(); ++r) {
      const auto& theirs = said[static_cast<size_t>(board_ranks_[static_cast<size_t>(r)])];
      if (r == rank() || !theirs) continue;
      const auto number = first_difference(mine, *theirs);
      if (!number) continue;
      const std::string own = text_of(told_[(*number - 1) % kEach]), text = theirs->text(*number),
                        other = text.empty() ? "another collective" : text;
      const bool first = rank() < r;
      mismatch(fmt::format("call {} of group {}: rank {} called {}, but rank {} called {}. Every "
                           "rank must make the same calls in the same order",
                           *number, group_, first ? rank() : r, first ? own : other,
                           first ? r : rank(), first ? other : own),
               r);
    }
  }

  /// What each rank sends to each of the others, and what that one expects.
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
          mismatch(fmt::format("call {} of group {}, {}: rank {} sends {} elements to rank {}, but "
                               "rank {} expects {}. Both ends of a pair must agree",
                               calls_.load(), group_, text_of(told_[(calls_ - 1) % kEach]), r,
                               count(r, q), q, q, count(q, n + r)),
                   static_cast<int>(r));
  }

  [[noreturn]] void mismatch(const std::string& text, int peer) {
    if (watch_) watch_->end_all(text);
    if (stalls_) stalls_->end_all(text);
    abort(text, AbortKind::mismatch);
    throw Mismatch(text, {rank(), rank() ? 0 : peer, "", static_cast<int64_t>(calls_)});
  }

  using Key = std::tuple<uint8_t, int32_t, uint64_t>;
  static Key key(Token t) { return {t.kind, t.peer, t.number}; }

  Token message(WaitKind kind, Token token, const CallWords& words, CallSite site) {
    if (stalls_) note_message(kind, token, words, site);
    if (!watch_) return token;
    if (words.root == kAnySource) {
      watch_->posted_any_source(group_, words.tag);
      return token;
    }
    Message m{
        token, kind, words, site,
        watch_->posted(group_, kind, board_ranks_[static_cast<size_t>(words.root)], words.tag)};
    if (token.kind == 0) return token;
    open_[key(token)] = m.waiting(*this);
    constexpr size_t kOpen = 65536;  // whose Works were dropped
    if (open_.size() > kOpen) open_.erase(open_.begin());
    return token;
  }

  /// A message, as it is told of when it makes a rank wait.
  struct Message {
    Token token;
    WaitKind kind = WaitKind::none;
    CallWords words{};
    CallSite site{};
    uint64_t number = 0;  // among those of its direction, peer and tag; 0: from any rank

    Waiting waiting(const CheckedBackend& of) const {
      Waiting w{number ? kind : WaitKind::none,
                of.group_,
                {},
                number,
                words.tag,
                fmt::format("{} with tag {} of group {}", text_of(tell(0, words, site)), words.tag,
                            of.group_),
                stable_hash({static_cast<uint64_t>(words.dtype), words.count})};
      if (number) w.ranks.push_back(of.board_ranks_[static_cast<size_t>(words.root)]);
      return w;
    }
  };

  void note_message(WaitKind kind, Token token, const CallWords& words, CallSite site) {
    caller_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    uint64_t number = 0;
    {
      std::lock_guard lock(messages_mutex_);
      if (words.root == kAnySource) {
        messages_.any_source_tags.insert(words.tag);
      } else {
        const std::pair key{board_ranks_[static_cast<size_t>(words.root)], words.tag};
        if (!last_pair_ || last_key_ != key) {
          last_key_ = key;
          last_pair_ = &messages_.messages[key];
        }
        number = kind == WaitKind::send ? ++last_pair_->first : ++last_pair_->second;
        if (messages_.messages.size() > kMessagesKept) {
          messages_.messages.clear();
          messages_.all_messages = false;
          last_pair_ = nullptr;
        }
      }
    }
    if (token.kind) sent_[++sent_count_ % kEach] = {token, kind, words, site, number};
  }

  /// False: it is late, and, where that is an end, the group ended here. Without a watch the
  /// backend waits.
  bool await(const Waiting& what, Token token, Duration timeout, bool late_is_an_end) {
    WaitWatch::Ended ended;
    try {
      ended = watch_->await(
          what, [&] { return token.kind == 0 || inner_->completed_with_crew(token); }, timeout);
    } catch (const Mismatch& e) {  // another rank knew it first, or the backend sees who left
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
    throw Timeout(text, {rank(), -1, "", static_cast<int64_t>(calls_)});
  }

  void compare_by(Token token) {
    if (!stalls_) return inner_->wait(token, timeout());
    compares_ = true;
    wait_watched(token, timeout());
    compares_ = false;
  }

  /// Everybody's bytes, rank after rank.
  std::vector<char> exchange(const void* mine, size_t bytes) {
    const auto n = static_cast<int64_t>(bytes);
    const auto options = at::TensorOptions(at::kByte);
    at::Tensor in = at::empty({n}, options);
    std::memcpy(in.data_ptr(), mine, bytes);
    at::Tensor out = at::empty({n * size()}, options.device(device_));
    failed_ = true;  // until it is done
    const at::Tensor there = in.to(device_);
    const Token token = inner_->post(
        {.op = Collective::all_gather, .input = &there, .output = &out, .site = site_});
    if (watch_)
      await({WaitKind::collective, group_, board_ranks_, calls_, 0, text_of_call(calls_)}, token,
            timeout(), true);
    else
      compare_by(token);
    failed_ = false;
    out = out.cpu();
    std::vector<char> all(static_cast<size_t>(out.numel()));
    std::memcpy(all.data(), out.data_ptr(), all.size());
    return all;
  }

  const std::string group_;
  const bool each_;
  const uint64_t last_;             // of how many collectives are compared at once
  std::atomic<uint64_t> calls_{0};  // another thread of this rank may tell of them
  uint64_t hash_ = 0;
  Told told_[kEach] = {};
  at::Device device_ = at::kCPU;  // of the last call
  CallSite site_;
  const std::shared_ptr<WaitWatch> watch_;  // with each
  const std::vector<int> board_ranks_;
  std::map<Key, Waiting> open_;  // with each: messages under way
  bool failed_ = false;
  bool compared_ = false;  // with what the others called, after a failure

  std::shared_ptr<StallWatch> stalls_;     // with hash; and these:
  std::atomic<std::thread::id> caller_{};  // of the last call
  Token tokens_[kEach] = {};               // of the calls in told_
  struct Parts {
    uint64_t number = 0;  // of the call
    std::vector<int64_t> sends, expects;
  };
  static constexpr size_t kParts = 8;
  Parts parts_[kParts];  // of the latest all_to_all calls
  uint64_t parts_count_ = 0;
  Message sent_[kEach] = {};  // the latest messages, either way
  uint64_t sent_count_ = 0;
  std::mutex messages_mutex_;
  GroupCalls messages_;
  std::pair<int, int> last_key_{};                      // of the last message:
  std::pair<uint64_t, uint64_t>* last_pair_ = nullptr;  // its place in messages_
  Token waits_{};                                       // what wait() waits for
  bool compares_ = false;                               // it waits for the others' hashes
  Duration limit_{};
  std::string makes_;  // the group that is being made of this one
  std::optional<Clock::time_point> stalled_since_;
};

}  // namespace

std::shared_ptr<Backend> checked_backend(std::shared_ptr<Backend> inner,
                                         const std::string& check_word, const std::string& group,
                                         std::unique_ptr<WaitBoard> board) {
  if (check_word == "off") return inner;
  check<UsageError>(check_word == "each" || check_word == "hash",
                    "check is '{}'; each, hash and off are known", check_word);
  const bool each = check_word == "each";
  std::shared_ptr<WaitWatch> watch;
  std::shared_ptr<StallWatch> stalls;
  if (each && board) watch = std::make_shared<WaitWatch>(std::move(board));
  if (!each && board) stalls = std::make_shared<StallWatch>(std::move(board));
  std::vector<int> ranks(static_cast<size_t>(inner->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<CheckedBackend>(std::move(inner), each, group, std::move(watch),
                                          std::move(stalls), std::move(ranks));
}

}  // namespace trireme::detail
