// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/recorded_backend.h"

#include <fmt/core.h>

#include <exception>

#include "trireme/base/error.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/local/ring_queue.h"
#include "trireme/comm/wrappers/forwarding_backend.h"

namespace trireme::detail {

namespace {

class RecordedBackend final : public ForwardingBackend {
 public:
  RecordedBackend(std::shared_ptr<Backend> inner, const std::string& group, int world_rank)
      : ForwardingBackend(std::move(inner)),
        group_(group),
        ring_(new flight::Ring{}),
        recorder_(ring_.get()),
        dumper_(ring_.get(), {.backend = name(),
                              .group = group,
                              .rank = rank(),
                              .size = size(),
                              .world_rank = world_rank}) {}

  // After a UsageError nothing was sent, so a collective's number is free again.
  Token post(const Call& call) override {
    const bool pair = call.facts().is_message;
    uint64_t number = calls_ + 1;
    if (pair)
      number = recorder_.pair(words_of(call), call.site);
    else
      recorder_.call(number, words_of(call), call.site);
    const Token token = guarded([&] { return inner_->post(call); });
    if (!pair) calls_ = number;
    opened({token, number, pair});
    return token;
  }

  void wait(Token token, Duration timeout) override {
    WaitMark waits;
    if (marks_progress()) waits.begin(text_of(token));
    guarded([&] { inner_->wait(token, timeout); });
    finish(token);
  }
  bool completed(Token token) override {
    const bool done = guarded([&] { return inner_->completed(token); });
    if (done) finish(token);
    return done;
  }
  void progress() override {
    guarded([&] { inner_->progress(); });
  }
  void abort(const std::string& why, AbortKind kind) override {
    if (!dumped_ && kind != AbortKind::other) dumped_ = dumper_.dump_failure(why.c_str());
    inner_->abort(why, kind);
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& group) override {
    const auto me = static_cast<size_t>(rank());
    return recorded_backend(inner_->subgroup(members, group), group,
                            me < identity.world_ranks.size() ? identity.world_ranks[me] : rank());
  }

 private:
  struct Open {
    Token token;
    uint64_t number;
    bool pair;
  };

  /// Dumps on errors that end the group; an error of one call alone passes.
  template <class Body>
  auto guarded(const Body& body) -> decltype(body()) {
    try {
      return body();
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception& e) {
      if (!dumped_) dumped_ = dumper_.dump_failure(e.what());
      throw;
    }
  }

  void close(const Open& open) {
    if (open.pair)
      recorder_.pair_done(open.number);
    else
      recorder_.done(open.number);
  }
  void opened(const Open& open) {
    if (open.token.kind == 0) return close(open);
    open_.push(open);
    // These were never waited for, and the ring has dropped them.
    if (open_.size() > 2 * flight::kRecords) open_.erase(0);
  }
  /// open_.size(): it is finished, or was never waited for.
  size_t find(Token token) {
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i].token.number == token.number && open_[i].token.peer == token.peer &&
          open_[i].token.kind == token.kind)
        return i;
    return open_.size();
  }
  void finish(Token token) {
    const size_t at = find(token);
    if (at == open_.size()) return;
    close(open_[at]);
    open_.erase(at);
  }

  /// "call 7 of group world, all_reduce(float32[10], sum) at train.cc:40".
  std::string text_of(Token token) {
    const size_t at = find(token);
    if (at == open_.size()) return "a call of group " + group_;
    const auto& [_, number, pair] = open_[at];
    const flight::Record& r = (pair ? ring_->pairs : ring_->calls)[number % flight::kRecords];
    std::string text = pair ? "" : fmt::format("call {} of group {}, ", number, group_);
    text += flight::call_text(r.op, r.dtype, r.red, r.root, r.count);
    if (const uint32_t site = r.site; site < flight::kSites)
      text += std::string(" at ") + ring_->sites[site].text;
    return pair ? text + " of group " + group_ : text;
  }

  const std::string group_;
  std::unique_ptr<flight::Ring> ring_;
  flight::Recorder recorder_;
  flight::Dumper dumper_;
  uint64_t calls_ = 0;
  local::RingQueue<Open> open_;
  bool dumped_ = false;
};

}  // namespace

std::shared_ptr<Backend> recorded_backend(std::shared_ptr<Backend> inner, const std::string& group,
                                          int world_rank) {
  return std::make_shared<RecordedBackend>(std::move(inner), group, world_rank);
}

}  // namespace trireme::detail
