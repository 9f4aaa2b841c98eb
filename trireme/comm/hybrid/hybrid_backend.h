// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/flight/recorder.h"
#include "trireme/comm/hybrid/ending.h"
#include "trireme/comm/hybrid/layout.h"
#include "trireme/comm/registry.h"

// A call is a list of steps: calls of the three inner groups, and copies. Each group's steps are
// posted in the order in which they were planned, which is the same on every rank, whatever
// completes first; so ranks that run ahead never make a group's calls differ.
namespace trireme::detail {

class HybridBackend final : public Backend, public std::enable_shared_from_this<HybridBackend> {
 public:
  HybridBackend(const BackendSpec& spec, HostLayout layout);
  /// The inner groups leave in the same way after this.
  ~HybridBackend() override {
    if (progress_group()) progress_group()->leave(this);
    ending_.leave(!failure_);
  }

  const std::string& name() const override {
    static const std::string name = "hybrid";
    return name;
  }
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override;
  bool supports(ReduceOp op, at::ScalarType dtype) const override;
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return groups_[inside]->empty(sizes, options);
  }

  // calls.cc
  Token post(const Call& call) override;

  // steps.cc
  void join(std::shared_ptr<ProgressGroup> progress_group) override;
  void wait(Token token, Duration timeout) override;
  bool completed(Token token) override {
    progress();
    return is_complete(token);
  }
  int source(Token token) override {
    check<UsageError>((token.kind & 0xf) == kPairKind,
                      "source() was called on a call that is not a recv");
    return token.peer;
  }
  int64_t shared_bytes() const override { return groups_[inside]->shared_bytes(); }
  void progress() override;
  bool on_stall(std::function<void()> look) override {
    look_ = std::move(look);
    return true;
  }
  void when_complete(Token token, std::function<void()> done) override;

  // failing.cc
  void abort(const std::string& why, AbortKind kind) override;

  // backend.cc
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override;

 private:
  static constexpr uint8_t kCallKind = 1, kPairKind = 2;

  /// Where a step runs; each lane is one group.
  enum Lane : uint8_t { inside, across, flat, kLanes };

  struct Step {
    Lane lane;
    std::function<Token()> post;
    std::vector<size_t> after;  // steps of this call that it depends on
    bool posted = false, complete = false;
    Token token;
  };

  /// What the user called.
  struct What {
    flight::CallWords words;
    CallSite site;

    std::string text() const {
      std::string t = flight::call_text(words.op, words.dtype, words.red, words.root, words.count);
      if (site.file && *site.file) t += fmt::format(" at {}:{}", site.file, site.line);
      return t;
    }
  };

  struct Pending {
    What what;
    uint64_t number = 0;
    std::vector<Step> steps{};
    std::vector<at::Tensor> held{};
    std::function<void()> finish{}, done{};

    size_t add(Lane lane, std::function<Token()> post, std::vector<size_t> after = {}) {
      steps.push_back({lane, std::move(post), std::move(after), false, false, {}});
      return steps.size() - 1;
    }
  };

  struct Pair {
    What what;
    Token token{}, below{};
    Lane lane = flat;
    std::function<void()> done{};
  };

  // backend.cc
  std::shared_ptr<Backend> make_inside();
  std::shared_ptr<Backend> make_across(const std::vector<int>& members, const std::string& name);

  // failing.cc
  void usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  Failure in_own_numbers(const Error& e, Failure::Kind kind) const;
  void end_groups(const Failure& cause);
  [[noreturn]] void finish(const Failure& cause);
  [[noreturn]] void finish_because();
  Failure timed_out(Token token, Duration waited);

  // steps.cc
  Token launch(Pending p);
  bool is_complete(Token token) const;
  bool completed_in(Lane lane, Token token);
  void step(Pending& p);

  // calls.cc
  static What what(const Call& call) { return {words_of(call), call.site}; }
  /// Runs the call as one step among all ranks.
  Token whole(const Call& call);
  Token message(const Call& call);
  Token all_reduce(const Call& call);
  Token broadcast(const Call& call);
  Token reduce(const Call& call);
  Token all_gather(const Call& call);
  Token reduce_scatter(const Call& call);
  Token barrier(const Call& call);
  void add_all_reduce(Pending& p, const at::Tensor& flat_tensor, ReduceOp op, CallSite site);
  void scale(const at::Tensor& t) const {
    at::NoGradGuard no_grad;
    t.mul_(1.0 / size());
  }

  BackendSpec spec_;
  HostLayout layout_;
  const bool even_;
  std::shared_ptr<Backend> groups_[kLanes];
  std::deque<Pending> pending_;
  std::deque<Pair> pairs_;
  uint64_t calls_ = 0, pair_calls_ = 0;
  uint64_t moves_ = 0;          // steps posted and complete
  Lane at_ = inside;            // the group polled last
  std::function<void()> look_;  // called when this rank waits for long
  std::exception_ptr failure_;
  Ending ending_;
};

}  // namespace trireme::detail
