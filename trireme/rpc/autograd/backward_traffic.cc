// SPDX-License-Identifier: Apache-2.0
// Gradients that a worker's part of a backward waits for, and those that leave.
#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/autograd/backward_part.h"
#include "trireme/rpc/autograd/contexts.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc::autograd {

void BackwardPart::came(const Pair& pair, std::vector<at::Tensor> gradients,
                        const std::string& from) {
  std::shared_ptr<rpc::detail::FutureState<void>> waiter;
  std::optional<size_t> ready;
  {
    std::lock_guard lock(mutex_);
    if (error_ || finished_) return;
    const auto place = places_.find(pair);
    check<UsageError>(place != places_.end(), "worker '{}' awaits no such gradient",
                      context_->worker());
    Entry& entry = entries_[place->second];
    check<UsageError>(entry.sent->worker() == from && !entry.here &&
                          gradients.size() <= entry.sent->num_outputs(),
                      "worker '{}' awaits no such gradient from worker '{}'", context_->worker(),
                      from);
    entry.here = true;
    entry.gradients = std::move(gradients);
    waiter = entry.waited_for;
    if (entry.pass) {
      Pass& pass = passes_[*entry.pass];
      if (--pass.missing == 0 && !pass.waits) {
        if (pass.losses)
          waiter = losses_may_begin_;
        else
          ready = entry.pass;
      }
    }
  }
  if (waiter) waiter->set({});
  if (ready) executor_->post([self = shared_from_this(), pass = *ready] { self->run(pass); });
}

void BackwardPart::lost(const rpc::detail::Line* line) {
  std::string worker;
  {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_)
      if (entry.sent && !entry.here && entry.sent->line().lock().get() == line)
        worker = entry.sent->worker();
  }
  if (worker.empty()) return;
  fail(std::make_exception_ptr(PeerLost(
      fmt::format("worker '{}' was lost before it had sent a gradient of context {} to worker '{}'",
                  worker, shown(context_->id()), context_->worker()))));
}

std::vector<at::Tensor> BackwardPart::wait_for(const Pair& pair) {
  std::shared_ptr<rpc::detail::FutureState<void>> future;
  Entry* entry = nullptr;
  {
    std::lock_guard lock(mutex_);
    entry = &entries_[places_.at(pair)];
    if (error_) std::rethrow_exception(error_);
    if (entry->here) return std::move(entry->gradients);
    if (!entry->waited_for)
      entry->waited_for = std::make_shared<rpc::detail::FutureState<void>>(executor_);
    future = entry->waited_for;
  }
  future->wait();
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return std::move(entry->gradients);
}

void BackwardPart::leave(const Received& node, std::vector<at::Tensor> gradients) {
  if (node.member() == context_->member())
    return came(node.pair(), std::move(gradients), node.worker());
  const auto line = node.line().lock();
  check<PeerLost>(line != nullptr,
                  "worker '{}', which has a gradient of context {} to come, is gone", node.worker(),
                  shown(context_->id()));
  rpc::detail::Access::make(line, deadline_.remaining())
      .async<GradientsCame>(context_->id(), number_, node.pair(), std::move(gradients))
      .consume([self = shared_from_this()](rpc::detail::FutureState<void>& state) {
        if (state.failed()) self->fail(state.take_error());
      });
}

}  // namespace trireme::rpc::autograd
