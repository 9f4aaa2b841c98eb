// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/backward_part.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::rpc::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

constexpr size_t kLossesEntry = 0;

// What autograd computed for a parameter may be an expanded number, or somebody else's too.
at::Tensor own(at::Tensor gradient) {
  if (gradient.layout() != at::kStrided) return gradient;
  const bool shared = gradient.use_count() > 1 || gradient.storage().use_count() > 1;
  return shared || !gradient.is_non_overlapping_and_dense()
             ? gradient.clone(at::MemoryFormat::Contiguous)
             : gradient;
}

}  // namespace

BackwardPart::BackwardPart(std::shared_ptr<LocalContext> context, uint64_t number, bool accumulate,
                           std::shared_ptr<rpc::detail::Executor> executor)
    : context_(std::move(context)),
      number_(number),
      accumulate_(accumulate),
      executor_(std::move(executor)),
      done_(std::make_shared<rpc::detail::FutureState<void>>(executor_)) {}

BackwardPart::~BackwardPart() = default;

void BackwardPart::check_open() const {
  if (error_) std::rethrow_exception(error_);
  check<UsageError>(!begun_, "backward {} of context {} has begun already", number_,
                    shown(context_->id()));
}

Found BackwardPart::found(GraphWalk::Behind behind) {
  Found found;
  found.touches = std::move(behind.touches);
  for (Received* received : behind.exits) {
    check<UsageError>(received->belongs_to(context_),
                      "the losses depend on a tensor of context {}, and this is context {}: what "
                      "comes from other workers is part of one context",
                      shown(received->context()), shown(context_->id()));
    exits_.emplace(received->pair(), received);
    found.exits.push_back({received->pair(), received->worker(), received->member()});
  }
  return found;
}

Found BackwardPart::look_behind_losses(const std::vector<at::Tensor>& losses) {
  std::lock_guard lock(mutex_);
  check_open();
  losses_ = losses;
  entries_.emplace_back();
  edge_list edges;
  for (const at::Tensor& loss : losses) edges.push_back(torch::autograd::impl::gradient_edge(loss));
  return found(walk_.enter(edges));
}

std::vector<Found> BackwardPart::look_behind(const std::vector<Pair>& pairs) {
  std::lock_guard lock(mutex_);
  check_open();
  std::vector<Found> all;
  for (const Pair& pair : pairs) {
    Entry entry;
    entry.sent = context_->sent(pair);
    check<UsageError>(places_.emplace(pair, entries_.size()).second,
                      "worker '{}' was asked twice for what lies behind one entry",
                      context_->worker());
    const edge_list edges = entry.sent->next_edges();
    entries_.push_back(std::move(entry));
    all.push_back(found(walk_.enter(edges)));
  }
  return all;
}

Future<void> BackwardPart::begin(const std::vector<PassOrder>& orders, bool retain_graph,
                                 Deadline deadline, const Spawn& spawn) {
  std::vector<size_t> waiting, ready;
  {
    std::lock_guard lock(mutex_);
    check_open();
    const auto place_of = [&](const Pair& pair) {
      const auto place = places_.find(pair);
      check<UsageError>(place != places_.end(), "worker '{}' has not looked behind an entry",
                        context_->worker());
      return place->second;
    };
    std::vector<Pass> passes;
    std::map<size_t, size_t> pass_of;  // of entries, once all orders have been looked at
    std::vector<std::vector<std::pair<Received*, std::vector<NodeOf<Sent>>>>> later(orders.size());
    for (size_t i = 0; i < orders.size(); ++i) {
      const PassOrder& order = orders[i];
      Pass& pass = passes.emplace_back();
      pass.losses = order.losses;
      pass.waits = order.waits;
      check<UsageError>(!order.losses || !losses_.empty(), "worker '{}' has no losses",
                        context_->worker());
      check<UsageError>(!order.waits || order.after.size() == order.entries.size(),
                        "a pass of worker '{}' has no order to wait in", context_->worker());
      if (order.losses) pass.entries.push_back(kLossesEntry);
      std::map<Pair, std::vector<NodeOf<Sent>>> after;
      for (size_t k = 0; k < order.entries.size(); ++k) {
        const size_t place = place_of(order.entries[k]);
        check<UsageError>(pass_of.emplace(place, i).second,
                          "an entry of worker '{}' is in two passes", context_->worker());
        pass.entries.push_back(place);
        if (!entries_[place].here) ++pass.missing;
        if (order.waits)
          for (const Pair& exit : order.after[k]) after[exit].push_back(entries_[place].sent);
      }
      for (const Pair& exit : order.exits) {
        const auto place = exits_.find(exit);
        check<UsageError>(place != exits_.end(), "worker '{}' has not found an exit",
                          context_->worker());
        pass.exits.push_back(place->second);
        later[i].emplace_back(place->second, std::move(after[exit]));
      }
      if (pass.losses) continue;
      if (pass.waits)
        waiting.push_back(i);
      else if (pass.missing == 0)
        ready.push_back(i);
    }
    // Nothing is refused from here on.
    for (const auto& [place, pass] : pass_of) entries_[place].pass = pass;
    begun_ = true;
    retain_graph_ = retain_graph;
    deadline_ = deadline;
    passes_ = std::move(passes);
    losses_may_begin_ = std::make_shared<rpc::detail::FutureState<void>>(executor_);
    const auto self = shared_from_this();
    for (const auto& exits : later)
      for (const auto& [received, sent] : exits) {
        received->begin(sent);
        received->set_traffic(self);
      }
    for (Entry& entry : entries_)
      if (entry.sent && entry.pass) entry.sent->set_traffic(self);
  }
  try {
    for (const size_t pass : waiting) spawn([self = shared_from_this(), pass] { self->run(pass); });
  } catch (const std::system_error& error) {
    fail(std::make_exception_ptr(ResourceError(fmt::format(
        "worker '{}' can start no thread for a backward: {}", context_->worker(), error.what()))));
  }
  for (const size_t pass : ready)
    executor_->post([self = shared_from_this(), pass] { self->run(pass); });
  return Future<void>(done_);
}

void BackwardPart::run_losses() {
  for (size_t i = 0; i < passes_.size(); ++i) {
    if (!passes_[i].losses) continue;
    bool wait = false;
    {
      std::lock_guard lock(mutex_);
      wait = !passes_[i].waits && passes_[i].missing > 0 && !error_;
    }
    if (wait) losses_may_begin_->wait();
    run(i);
  }
}

void BackwardPart::stop_with(std::stop_token token) {
  stopper_ = std::make_unique<std::stop_callback<std::function<void()>>>(
      std::move(token), [weak = weak_from_this()] {
        if (const auto part = weak.lock())
          part->fail(std::make_exception_ptr(
              Aborted("the backward was given up by the worker that called it")));
      });
}

void BackwardPart::run(size_t number) {
  Pass& pass = passes_[number];
  {
    std::lock_guard lock(mutex_);
    if (error_ || pass.state != Pass::not_yet) return;
    pass.state = Pass::running;
  }
  std::exception_ptr error;
  try {
    const rpc::detail::ContextScope none(nullptr);
    go(pass);
  } catch (...) {
    error = std::current_exception();
  }
  pass_is_over(number, std::move(error));
}

// Once it runs, all that is read here stays as it is.
void BackwardPart::go(Pass& pass) {
  edge_list roots, outputs;
  variable_list arriving;
  std::unordered_set<torch::autograd::Node*> wanted;
  for (const size_t place : pass.entries) {
    if (const auto& sent = entries_[place].sent) {
      roots.emplace_back(sent, 0);
      arriving.push_back(Sent::nothing());
    } else {
      for (const at::Tensor& loss : losses_) {
        roots.push_back(torch::autograd::impl::gradient_edge(loss));
        arriving.push_back(at::ones_like(loss));
      }
    }
    for (const Edge& leaf : walk_.leaves(static_cast<int>(place)))
      if (wanted.insert(leaf.function.get()).second) outputs.push_back(leaf);
  }
  const size_t leaves = outputs.size();
  for (const Received* exit : pass.exits) outputs.push_back(exit->end());
  if (outputs.empty()) return;
  auto& engine = torch::autograd::Engine::get_default_engine();
  if (accumulate_) {
    engine.execute(roots, arriving, retain_graph_, /*create_graph=*/false, /*accumulate_grad=*/true,
                   {});
    return;
  }
  variable_list captured = engine.execute(roots, arriving, retain_graph_, /*create_graph=*/false,
                                          /*accumulate_grad=*/false, outputs);
  for (size_t i = 0; i < leaves; ++i) {
    if (!captured[i].defined()) continue;
    auto* leaf = static_cast<torch::autograd::AccumulateGrad*>(outputs[i].function.get());
    pass.gradients.emplace_back(leaf->variable, std::move(captured[i]));
  }
}

bool BackwardPart::over() const {
  const bool running = std::any_of(passes_.begin(), passes_.end(),
                                   [](const Pass& pass) { return pass.state == Pass::running; });
  const bool all = begun_ && std::all_of(passes_.begin(), passes_.end(),
                                         [](const Pass& pass) { return pass.state == Pass::done; });
  return all || (error_ && !running);
}

void BackwardPart::pass_is_over(size_t number, std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    passes_[number].state = Pass::done;
  }
  if (error) return fail(std::move(error));
  {
    std::lock_guard lock(mutex_);
    if (finished_ || !over()) return;
    finished_ = true;
  }
  finish();
}

void BackwardPart::fail(std::exception_ptr error) {
  std::vector<std::shared_ptr<rpc::detail::FutureState<void>>> waiters;
  bool finishes = false;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    if (!error_) error_ = std::move(error);
    for (Entry& entry : entries_)
      if (entry.waited_for) waiters.push_back(entry.waited_for);
    if (losses_may_begin_) waiters.push_back(losses_may_begin_);
    finishes = over();
    finished_ = finishes;
  }
  for (const auto& waiter : waiters) waiter->set({});
  if (finishes) finish();
}

void BackwardPart::finish() {
  std::vector<Pair> through;
  for (const Entry& entry : entries_) {
    if (!entry.sent || !entry.pass) continue;
    entry.sent->set_traffic(nullptr);
    through.push_back(entry.sent->pair());
  }
  for (const Pass& pass : passes_)
    for (Received* exit : pass.exits) exit->finish();
  if (!error_) {
    try {
      take_gradients();
    } catch (...) {  // of somebody's hook
      error_ = std::current_exception();
    }
    if (!retain_graph_) context_->let_go(through);
  }
  context_->end_part(this);
  if (error_)
    done_->fail(error_);
  else
    done_->set({});
}

// Sums have the order of passes, not that of their ends.
void BackwardPart::take_gradients() {
  std::vector<std::pair<at::Tensor, at::Tensor>> totals;
  std::unordered_map<const void*, size_t> places;
  for (Pass& pass : passes_)
    for (auto& [parameter, gradient] : pass.gradients) {
      const auto [place, first] = places.emplace(parameter.unsafeGetTensorImpl(), totals.size());
      if (first)
        totals.emplace_back(parameter, std::move(gradient));
      else
        totals[place->second].second = totals[place->second].second + gradient;
    }
  for (auto& [parameter, gradient] : totals) {
    if constexpr (!compat::kGradCallsLeafHooks)
      for (const auto& hook : torch::autograd::impl::hooks(parameter))
        gradient = (*hook)({gradient})[0];
    if (gradient.defined()) context_->add_gradient(parameter, own(std::move(gradient)));
  }
}

}  // namespace trireme::rpc::autograd
