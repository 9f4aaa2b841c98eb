// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/rpc/autograd/calls.h"
#include "trireme/rpc/autograd/graph_walk.h"
#include "trireme/rpc/autograd/local_context.h"
#include "trireme/rpc/future.h"

namespace trireme::rpc::autograd {

/// What one worker does in one backward: first it finds what lies behind its entries, then it runs
/// its passes. Threads: any.
class BackwardPart final : public GradientTraffic,
                           public std::enable_shared_from_this<BackwardPart> {
 public:
  BackwardPart(std::shared_ptr<LocalContext> context, uint64_t number, bool accumulate,
               std::shared_ptr<rpc::detail::Executor> executor);
  ~BackwardPart() override;
  uint64_t number() const { return number_; }

  /// The losses are the first entry.
  Found look_behind_losses(const std::vector<at::Tensor>& losses);
  std::vector<Found> look_behind(const std::vector<Pair>& sent);

  /// Starts a thread that runs this.
  using Spawn = std::function<void(std::function<void()>)>;
  /// Begins. The future of when all passes are done, and the gradients are in the context.
  Future<void> begin(const std::vector<PassOrder>& passes, bool retain_graph, Deadline deadline,
                     const Spawn& spawn);
  /// Where the losses are: runs their pass on this thread, waiting for what it needs.
  void run_losses();
  /// Ends it, also when the call is cancelled that it belongs to.
  void stop_with(std::stop_token token);

  /// Gradients of what was sent have come, from this worker.
  void came(const Pair& pair, std::vector<at::Tensor> gradients, const std::string& from);
  void fail(std::exception_ptr error);
  void lost(const rpc::detail::Line* line);

  std::vector<at::Tensor> wait_for(const Pair& pair) override;
  void leave(const Received& node, std::vector<at::Tensor> gradients) override;

 private:
  struct Entry {
    NodeOf<Sent> sent;  // null: the losses
    bool expected = false, here = false;
    std::vector<at::Tensor> gradients;
    std::shared_ptr<rpc::detail::FutureState<void>> waited_for;
    std::optional<size_t> pass;
  };
  struct Pass {
    std::vector<size_t> entries;
    std::vector<Received*> exits;
    bool losses = false, waits = false;
    size_t missing = 0;
    enum { not_yet, running, done } state = not_yet;
    std::vector<std::pair<at::Tensor, at::Tensor>> gradients;
  };

  Found found(GraphWalk::Behind behind);
  void run(size_t pass);
  void go(Pass& pass);
  void pass_is_over(size_t pass, std::exception_ptr error);
  bool over() const;
  void finish();
  void take_gradients();
  void check_open() const;

  const std::shared_ptr<LocalContext> context_;
  const uint64_t number_;
  const bool accumulate_;
  const std::shared_ptr<rpc::detail::Executor> executor_;
  const std::shared_ptr<rpc::detail::FutureState<void>> done_;

  mutable std::mutex mutex_;
  GraphWalk walk_;
  std::vector<at::Tensor> losses_;
  std::vector<Entry> entries_;
  std::map<Pair, size_t> places_;
  std::map<Pair, Received*> exits_;
  std::vector<Pass> passes_;
  bool begun_ = false, finished_ = false, retain_graph_ = false;
  Deadline deadline_ = Deadline::never();
  std::exception_ptr error_;
  std::shared_ptr<rpc::detail::FutureState<void>> losses_may_begin_;
  std::unique_ptr<std::stop_callback<std::function<void()>>> stopper_;
};

}  // namespace trireme::rpc::autograd
