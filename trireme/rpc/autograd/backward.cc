// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/backward.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/autograd/plan/backward_plan.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc::autograd {
namespace {

using Line = std::shared_ptr<rpc::detail::Line>;
using rpc::detail::Access;
using rpc::detail::FutureState;

class Backward {
 public:
  Backward(const Worker& me, Contexts& contexts, std::shared_ptr<LocalContext> context,
           const BackwardKind& kind, Deadline deadline)
      : me_(me),
        contexts_(contexts),
        context_(std::move(context)),
        kind_(kind),
        deadline_(deadline),
        number_(context_->next_backward()),
        part_(context_->part(number_, kind.accumulate, contexts.executor())) {}

  void run(const std::vector<at::Tensor>& losses) {
    try {
      look(losses);
      go(backward_plan::make_passes(entries_, kind_.accumulate));
    } catch (const std::exception& error) {
      give_up(brief(error));
      part_->fail(std::current_exception());
      throw;
    }
  }

 private:
  struct Taking {  // a worker that takes part
    std::string name;
    Line line;                  // null: this one
    std::vector<int> entries;   // places in entries_, as it counts them
    std::vector<Pair> to_look;  // not asked yet
    std::vector<PassOrder> passes;
  };

  Taking& worker(int64_t member, const std::string& name) {
    auto& worker = workers_[member];
    worker.name = name;
    if (worker.line || member == context_->member()) return worker;
    worker.line = context_->line_to(member);
    if (!worker.line)
      worker.line = Access::line(me_.peer(name, {.deadline = deadline_.remaining()}));
    check<PeerLost>(worker.line->member() == member,
                    "worker '{}' is another one than took part in context {}, which is gone", name,
                    shown(context_->id()));
    return worker;
  }

  // All that the losses depend on, worker by worker, before anything runs.
  void look(const std::vector<at::Tensor>& losses) {
    Taking& self = worker(context_->member(), context_->worker());
    const auto first = part_->look_behind_losses(losses);
    add(self, context_->member(), backward_plan::kLosses, first);
    for (bool asked = true; asked;) {
      asked = false;
      std::vector<std::tuple<int64_t, std::vector<Pair>, Future<std::vector<Found>>>> answers;
      for (auto& [member, taking] : workers_) {
        if (taking.to_look.empty()) continue;
        asked = true;
        auto pairs = std::exchange(taking.to_look, {});
        Future<std::vector<Found>> answer =
            taking.line ? Access::make(taking.line, deadline_.remaining())
                              .async<LookBehind>(context_->id(), number_, kind_.accumulate, pairs)
                        : ready(part_->look_behind(pairs));
        answers.emplace_back(member, std::move(pairs), std::move(answer));
      }
      for (auto& [member, pairs, answer] : answers) {
        const auto found = answer.get();
        check<Corrupt>(found.size() == pairs.size(),
                       "worker '{}' does not say what lies behind what it sent",
                       workers_[member].name);
        for (size_t i = 0; i < pairs.size(); ++i)
          add(workers_[member], member, messages_.at(pairs[i]), found[i]);
      }
    }
  }

  void add(Taking& at, int64_t member, int message, const Found& found) {
    backward_plan::Entry entry;
    entry.worker = number_of(member);
    entry.message = message;
    for (const int touched : found.touches) {
      check<Corrupt>(touched >= 0 && static_cast<size_t>(touched) < at.entries.size(),
                     "worker '{}' speaks of an entry that it has not", at.name);
      entry.touches.push_back(at.entries[static_cast<size_t>(touched)]);
    }
    at.entries.push_back(static_cast<int>(entries_.size()));
    for (const Exit& exit : found.exits) {
      const auto [place, first] = messages_.emplace(exit.pair, static_cast<int>(pairs_.size()));
      if (first) {
        pairs_.push_back(exit.pair);
        worker(exit.member, exit.worker).to_look.push_back(exit.pair);
      }
      entry.exits.push_back(place->second);
    }
    entries_.push_back(std::move(entry));
  }

  int number_of(int64_t member) {
    const auto [place, first] = numbers_.emplace(member, static_cast<int>(members_.size()));
    if (first) members_.push_back(member);
    return place->second;
  }

  std::vector<Pair> pairs_of(const std::vector<int>& messages) const {
    std::vector<Pair> pairs;
    for (const int message : messages)
      if (message != backward_plan::kLosses) pairs.push_back(pairs_[static_cast<size_t>(message)]);
    return pairs;
  }

  void go(const std::vector<backward_plan::Pass>& passes) {
    for (const auto& pass : passes) {
      PassOrder order;
      order.losses = !pass.entries.empty() && pass.entries.front() == backward_plan::kLosses;
      order.waits = pass.waits;
      order.entries = pairs_of(pass.entries);
      order.exits = pairs_of(pass.exits);
      if (pass.waits)
        for (size_t i = order.losses ? 1 : 0; i < pass.after.size(); ++i)
          order.after.push_back(pairs_of(pass.after[i]));
      workers_[members_[static_cast<size_t>(pass.worker)]].passes.push_back(std::move(order));
    }
    const auto gather = std::make_shared<Gather>(workers_.size(), contexts_.executor());
    const auto one_is_over = [gather, part = part_](FutureState<void>& state) {
      std::exception_ptr error = state.failed() ? state.take_error() : nullptr;
      if (error) part->fail(error);
      gather->one(std::move(error));
    };
    for (const auto& [member, taking] : workers_)
      if (taking.line)
        Access::make(taking.line, deadline_.remaining())
            .async<RunPasses>(context_->id(), number_, kind_, taking.passes)
            .consume(one_is_over);
    part_
        ->begin(workers_[context_->member()].passes, kind_.retain_graph, deadline_,
                [this](std::function<void()> task) { contexts_.spawn(std::move(task)); })
        .consume(one_is_over);
    part_->run_losses();
    gather->wait();
  }

  // The others may wait for what will not come.
  void give_up(const std::string& why) {
    for (const auto& [member, taking] : workers_)
      if (taking.line)
        Access::make(taking.line, std::chrono::seconds(60))
            .async<GiveUp>(context_->id(), number_, why)
            .consume([](FutureState<void>&) {});
  }

  /// Ends when all are over, or one has failed.
  class Gather {
   public:
    Gather(size_t left, std::shared_ptr<rpc::detail::Executor> executor)
        : left_(left), done_(std::make_shared<FutureState<void>>(std::move(executor))) {}
    void one(std::exception_ptr error) {
      bool last = false;
      {
        std::lock_guard lock(mutex_);
        last = --left_ == 0;
      }
      if (error)
        done_->fail(std::move(error));
      else if (last)
        done_->set({});
    }
    void wait() { Future<void>(done_).get(); }

   private:
    std::mutex mutex_;
    size_t left_;
    const std::shared_ptr<FutureState<void>> done_;
  };

  const Worker me_;
  Contexts& contexts_;
  const std::shared_ptr<LocalContext> context_;
  const BackwardKind kind_;
  const Deadline deadline_;
  const uint64_t number_;
  const std::shared_ptr<BackwardPart> part_;
  std::map<int64_t, Taking> workers_;  // by member
  std::map<int64_t, int> numbers_;
  std::vector<int64_t> members_;
  std::vector<backward_plan::Entry> entries_;
  std::map<Pair, int> messages_;
  std::vector<Pair> pairs_;  // of each message
};

}  // namespace

void run_backward(const Worker& me, Contexts& contexts,
                  const std::shared_ptr<LocalContext>& context,
                  const std::vector<at::Tensor>& losses, const BackwardKind& kind,
                  Deadline deadline) {
  check<UsageError>(!losses.empty(), "backward() needs a loss");
  for (const at::Tensor& loss : losses) {
    check<UsageError>(loss.defined() && loss.numel() == 1,
                      "backward() takes losses of one number each; this one has {}: sum it up",
                      loss.defined() ? loss.numel() : 0);
    check<UsageError>(loss.requires_grad(),
                      "a loss requires no gradient: none of its tensors does, or the worker that "
                      "computed it does not offer rpc::autograd::offer(), or it was not called "
                      "within the context");
  }
  const rpc::detail::ContextScope none(nullptr);
  Backward(me, contexts, context, kind, deadline).run(losses);
}

}  // namespace trireme::rpc::autograd
