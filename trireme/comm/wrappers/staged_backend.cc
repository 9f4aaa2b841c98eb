// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/staged_backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/comm/wrappers/forwarding_backend.h"
#include "trireme/comm/wrappers/moving_calls.h"
#include "trireme/comm/wrappers/one_device.h"
#include "trireme/comm/wrappers/staged_call.h"
#include "trireme/tensor/device/kind.h"

namespace trireme::detail {
namespace {

constexpr uint8_t kStaged = 0x3e;     // kind of a token: a call of this class, not of the backend
constexpr size_t kSources = 1 << 16;  // messages whose sender is known
using State = StagedCall::State;

class StagedBackend final : public ForwardingBackend {
 public:
  StagedBackend(std::shared_ptr<Backend> inner, std::vector<at::DeviceType> kinds)
      : ForwardingBackend(std::move(inner)), kinds_(std::move(kinds)) {}
  ~StagedBackend() override {
    if (progress_group()) progress_group()->leave(this);
  }

  using ForwardingBackend::supports;
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    const bool staged = device != at::kCPU && is_ours(device);
    return inner_->supports(op, dtype, staged ? at::kCPU : device);
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return options.device().is_cpu() ? inner_->empty(sizes, options) : at::empty(sizes, options);
  }

  Token post(const Call& call) override {
    const at::Tensor* t = off_cpu(call.input);
    if (!t) t = off_cpu(call.output);
    if (!t && calls_.empty()) [[likely]]
      return inner_->post(call);
    calls_move_.rethrow();
    check_one_device(call);
    if (!t && (advance(), unposted_ == 0)) return inner_->post(call);
    const at::NoGradGuard no_grad;
    calls_.push_back(std::make_unique<StagedCall>(number_ + 1, call, rank(),
                                                  t ? &streams(t->device()) : nullptr, pool_));
    ++number_;
    ++unposted_;
    advance();
    if (StagedCall* mine = find(number_); mine && mine->error) finish(*mine);  // throws
    return {number_, -1, kStaged};
  }

  void wait(Token token, Duration timeout) override {
    if (token.kind != kStaged && calls_.empty()) return inner_->wait(token, timeout);
    const Deadline deadline = Deadline::after(timeout);
    if (token.kind != kStaged) {
      wait_for_posts([&] { return inner_->completed(token); }, timeout, token);
      return inner_->wait(token, deadline.remaining());
    }
    wait_for_posts([&] { return is_settled(token.number); }, timeout, token);
    StagedCall* call = find(token.number);
    if (call && !call->error && call->state == State::posted) {
      calls_move_.move([&] { inner_->wait(call->token, deadline.remaining()); });
      calls_move_.move([&] { complete(*call); });
      advance();
      call = find(token.number);
    }
    if (call) finish(*call);
  }

  bool completed(Token token) override {
    if (!calls_.empty()) advance();
    if (token.kind != kStaged) return inner_->completed(token);
    StagedCall* call = find(token.number);
    if (!call) return true;
    if (!call->error && !call->is_back()) return false;
    finish(*call);
    return true;
  }

  int source(Token token) override {
    if (token.kind != kStaged) return inner_->source(token);
    const auto at = sources_.find(token.number);
    check<UsageError>(at != sources_.end(), "source() was called on a call that is not a recv");
    return at->second;
  }

  void progress() override {
    if (!calls_.empty()) advance();
    inner_->progress();
  }

  void abort(const std::string& why, AbortKind kind) override {
    inner_->abort(why, kind);
    aborted_ = true;  // what still waits for its copy fails with the inner backend's words
  }

  void when_complete(Token token, std::function<void()> done) override {
    if (token.kind != kStaged) return inner_->when_complete(token, std::move(done));
    StagedCall* call = find(token.number);
    if (!call) return done();
    if (call->on_device() || call->state == State::copying)
      call->done = std::move(done);
    else
      inner_->when_complete(call->token, std::move(done));
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    return std::make_shared<StagedBackend>(inner_->subgroup(members, name), kinds_);
  }

  void join(std::shared_ptr<ProgressGroup> progress_group) override {
    enter(*progress_group);
    ForwardingBackend::join(std::move(progress_group));
  }
  /// Of a progress group that the inner backend has joined.
  void enter(ProgressGroup& progress_group) {
    progress_group.enter(this, [this] {
      if (calls_move_.failed() || calls_move_.moving() || unposted_ == 0) return false;
      advance();
      return unposted_ > 0;
    });
  }

 private:
  bool is_ours(at::DeviceType type) const {
    return std::find(kinds_.begin(), kinds_.end(), type) != kinds_.end();
  }
  static const at::Tensor* off_cpu(const at::Tensor* t) {
    return t && t->defined() && !t->is_cpu() ? t : nullptr;
  }
  CopyStreams& streams(at::Device device) {
    for (const auto& s : streams_)
      if (s->device == device) return *s;
    return *streams_.emplace_back(std::make_unique<CopyStreams>(device));
  }
  StagedCall* find(uint64_t number) {
    const auto at = std::lower_bound(calls_.begin(), calls_.end(), number,
                                     [](const auto& c, uint64_t n) { return c->number < n; });
    return at != calls_.end() && (*at)->number == number ? at->get() : nullptr;
  }
  /// Complete, failed by itself, or forgotten.
  bool is_settled(uint64_t number) {
    const StagedCall* call = find(number);
    return !call || call->error || call->state == State::back;
  }

  void advance() {
    if (calls_move_.moving()) return;  // the inner backend waits, and the progress_group calls this
    calls_move_.move([&] {
      const at::NoGradGuard no_grad;
      post_what_is_here();
      for (const auto& call : calls_)
        if (call->state == State::posted && !call->error &&
            (call->token.kind == 0 || inner_->completed(call->token)))
          complete(*call);
      // Nobody has waited for these: their results are put in place as if somebody had now.
      for (const auto& call : calls_)
        if (call->done && call->is_back()) call->order_current_stream();
      while (!calls_.empty() && calls_.front()->is_over()) calls_.pop_front();
      std::erase_if(calls_, [](const auto& call) { return call->is_over(); });
    });
  }

  // In the order of the program, so that every rank gives the inner backend the same sequence.
  void post_what_is_here() {
    if (unposted_ == 0) return;
    for (size_t i = calls_.size() - unposted_; i < calls_.size(); ++i) {
      StagedCall& call = *calls_[i];
      if (!aborted_ && !call.is_here()) return;
      --unposted_;
      call.state = State::posted;
      try {
        call.token = inner_->post(call.call());
        if (call.done && !call.on_device())
          inner_->when_complete(call.token, std::exchange(call.done, {}));
      } catch (const UsageError&) {  // nothing was sent
        call.error = std::current_exception();
      }
    }
  }

  void complete(StagedCall& call) {
    if (call.state == State::back) return;
    if (call.call().op == Collective::recv) {
      const bool told = call.token.kind == 0 && call.token.peer >= 0;
      sources_[call.number] = call.call().root != kAnySource ? call.call().root
                              : told                         ? call.token.peer
                                                             : inner_->source(call.token);
      if (sources_.size() > kSources) sources_.erase(sources_.begin());
    }
    const at::NoGradGuard no_grad;
    call.copy_back();
  }

  void finish(StagedCall& call) {
    if (call.error) {
      const std::exception_ptr error = call.error;
      std::erase_if(calls_, [&](const auto& c) { return c.get() == &call; });
      std::rethrow_exception(error);
    }
    call.order_current_stream();
  }

  /// Until all calls have been given to the inner backend, whose wait() then sees to all of them,
  /// or `settled`. A device that does not come to its copy within the time ends the group.
  template <class Settled>
  void wait_for_posts(const Settled& settled, Duration timeout, Token token) {
    const Deadline deadline = Deadline::after(timeout);
    for (auto pause = std::chrono::microseconds(2);; pause = std::min(pause * 2, kLongest)) {
      advance();
      if (unposted_ == 0 || settled()) return;
      if (deadline.expired()) stream_is_late(token, timeout);
      if (progress_group()) progress_group()->progress_others(this);
      std::this_thread::sleep_for(pause);
    }
  }
  void stream_is_late(Token token, Duration timeout) {
    const StagedCall& first = *calls_[calls_.size() - unposted_];
    const Call& call = first.call();
    const std::string why = fmt::format(
        "rank {} did not send {} at {}:{} within {:.3g} s: its device's stream has not come to it; "
        "look for work on the device that does not end",
        rank(), name_of(call.named()), call.site.file, call.site.line,
        std::chrono::duration<double>(timeout).count());
    calls_move_.fail(std::make_exception_ptr(
        Timeout(why, {rank(), -1, name_of(call.named()), static_cast<int64_t>(token.number)})));
    inner_->abort(why, AbortKind::timeout);
    calls_move_.rethrow();
  }
  static constexpr std::chrono::microseconds kLongest{100};

  const std::vector<at::DeviceType> kinds_;
  std::vector<std::unique_ptr<CopyStreams>> streams_;
  HostPool pool_;  // outlives calls_
  std::deque<std::unique_ptr<StagedCall>> calls_;
  size_t unposted_ = 0;  // the last ones of calls_
  uint64_t number_ = 0;
  std::map<uint64_t, int> sources_;
  MovingCalls calls_move_{MovingCalls::UsageErrors::are_of_one};
  bool aborted_ = false;
};

}  // namespace

std::shared_ptr<Backend> staged_backend(std::shared_ptr<Backend> inner) {
  std::vector<at::DeviceType> kinds = asynchronous_kinds();
  if (kinds.empty()) return inner;
  const auto its_group = inner->progress_group();
  auto made = std::make_shared<StagedBackend>(std::move(inner), std::move(kinds));
  if (its_group)
    made->enter(*its_group);
  else
    made->join(std::make_shared<ProgressGroup>());
  return made;
}

}  // namespace trireme::detail
