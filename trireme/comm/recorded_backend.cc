// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/recorded_backend.h"

#include <deque>
#include <exception>

#include "trireme/base/error.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/forwarding_backend.h"

namespace trireme::detail {

namespace {

using flight::CallWords;
using flight::OpKind;

class RecordedBackend final : public ForwardingBackend {
 public:
  RecordedBackend(std::shared_ptr<Backend> inner, const std::string& group, int world_rank)
      : ForwardingBackend(std::move(inner)),
        ring_(new flight::Ring{}),
        recorder_(ring_.get()),
        dumper_(ring_.get(), {.backend = name(),
                              .group = group,
                              .rank = rank(),
                              .size = size(),
                              .world_rank = world_rank}) {}

  Token all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) override {
    return call(words_of(OpKind::all_reduce, t, 0, op), site,
                [&] { return inner_->all_reduce(t, op, site); });
  }
  Token broadcast(const at::Tensor& t, int root, CallSite site) override {
    return call(words_of(OpKind::broadcast, t, root), site,
                [&] { return inner_->broadcast(t, root, site); });
  }
  Token reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) override {
    return call(words_of(OpKind::reduce, t, root, op), site,
                [&] { return inner_->reduce(t, root, op, site); });
  }
  Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) override {
    return call(words_of(OpKind::all_gather, input), site,
                [&] { return inner_->all_gather(output, input, site); });
  }
  Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                       CallSite site) override {
    return call(words_of(OpKind::reduce_scatter, output, 0, op), site,
                [&] { return inner_->reduce_scatter(output, input, op, site); });
  }
  Token gather(const at::Tensor& output, const at::Tensor& input, int root,
               CallSite site) override {
    return call(words_of(OpKind::gather, input, root), site,
                [&] { return inner_->gather(output, input, root, site); });
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root,
                CallSite site) override {
    return call(words_of(OpKind::scatter, output, root), site,
                [&] { return inner_->scatter(output, input, root, site); });
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite site) override {
    return call(words_of(OpKind::all_to_all, input), site, [&] {
      return inner_->all_to_all(output, input, output_counts, input_counts, site);
    });
  }
  Token barrier(CallSite site) override {
    return call({.op = OpKind::barrier}, site, [&] { return inner_->barrier(site); });
  }
  Token send(const at::Tensor& t, int to, int tag, CallSite site) override {
    return message(words_of(OpKind::send, t, to, ReduceOp::sum, tag), site,
                   [&] { return inner_->send(t, to, tag, site); });
  }
  Token recv(const at::Tensor& t, int from, int tag, CallSite site) override {
    return message(words_of(OpKind::recv, t, from, ReduceOp::sum, tag), site,
                   [&] { return inner_->recv(t, from, tag, site); });
  }

  void wait(Token token, Duration timeout) override {
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

  /// Writes down what goes wrong for good; what is wrong with a call alone goes by.
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

  template <class Post>
  Token call(const CallWords& words, CallSite site, const Post& post) {
    recorder_.call(calls_ + 1, words, site);
    const Token token = guarded(post);  // a UsageError: nothing was sent, the number is free again
    opened({token, ++calls_, false});
    return token;
  }
  template <class Post>
  Token message(const CallWords& words, CallSite site, const Post& post) {
    const uint64_t number = recorder_.pair(words, site);
    const Token token = guarded(post);
    opened({token, number, true});
    return token;
  }

  void close(const Open& open) {
    if (open.pair)
      recorder_.pair_done(open.number);
    else
      recorder_.done(open.number);
  }
  void opened(const Open& open) {
    if (open.token.kind == 0) return close(open);
    open_.push_back(open);
    // Nobody ever asked for these; the ring has forgotten them.
    if (open_.size() > 2 * flight::kRecords) open_.pop_front();
  }
  void finish(Token token) {
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      if (it->token.number != token.number || it->token.peer != token.peer ||
          it->token.kind != token.kind)
        continue;
      close(*it);
      open_.erase(it);
      return;
    }
  }

  std::unique_ptr<flight::Ring> ring_;
  flight::Recorder recorder_;
  flight::Dumper dumper_;
  uint64_t calls_ = 0;
  std::deque<Open> open_;
  bool dumped_ = false;
};

}  // namespace

std::shared_ptr<Backend> recorded_backend(std::shared_ptr<Backend> inner, const std::string& group,
                                          int world_rank) {
  return std::make_shared<RecordedBackend>(std::move(inner), group, world_rank);
}

}  // namespace trireme::detail
