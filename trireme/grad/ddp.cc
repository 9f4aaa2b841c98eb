// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/ddp.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/grad/ddp_impl.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/rounds/gradient_checks.h"
#include "trireme/grad/rounds/round_begin.h"
#include "trireme/grad/tuning/bucket_sizes.h"

namespace trireme {
namespace {

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return glob_match(p, name); });
}

// The patterns, for the parameters' first names.
std::vector<std::string> checked_patterns(const DdpTensors& t,
                                          const std::vector<std::string>& patterns,
                                          const char* option) {
  for (const auto& pattern : patterns) {
    const auto names = with_first_names({pattern}, t.tied);
    check<UsageError>(std::any_of(t.parameters.begin(), t.parameters.end(),
                                  [&](const auto& p) { return matches(p.first, names); }),
                      "DdpOptions::{}: no parameter matches '{}'", option, pattern);
  }
  return with_first_names(patterns, t.tied);
}

NamedTensors part(const DdpTensors& t, const DdpOptions& o, bool sparse) {
  NamedTensors list;
  for (const auto& p : t.parameters)
    if ((matches(p.first, o.sparse) || matches(p.first, t.sparse)) == sparse) list.push_back(p);
  return list;
}

DdpOptions for_first_names(const Group& group, DdpOptions o, const DdpTensors& t) {
  check<UsageError>(!t.parameters.empty(),
                    "DistributedDataParallel: no parameter requires a gradient, so there is "
                    "nothing to reduce; use the module as it is");
  check_leaves(group, o, t);
  o.delayed = checked_patterns(t, o.delayed, "delayed");
  o.sparse = checked_patterns(t, o.sparse, "sparse");
  refuse_sparse(part(t, o, true));
  return o;
}

const DdpTensors& synchronised(Group& group, const DdpTensors& t) {
  synchronise_module(
      group, {{t.parameters, "parameter"}, {t.frozen, "frozen parameter"}, {t.buffers, "buffer"}},
      t.tied);
  return t;
}

ReduceOp op_of(const DdpOptions& o) {
  return o.mean == GradientMean::of_weights ? ReduceOp::sum : ReduceOp::avg;
}

ReducerOptions reducer_options(const Group& group, const NamedTensors& dense,
                               NonFiniteDetector& finite, const DdpOptions& o) {
  ReducerOptions r{bucket_sizes_for(group, o.bucket_bytes, o.first_bucket_bytes),
                   op_of(o),
                   o.check_finite ? finite.around(o.hook) : o.hook,
                   {}};
  if (o.before_reducing)
    r.delayed.assign(dense.size(), true);
  else if (!o.delayed.empty())
    for (const auto& [name, p] : dense) r.delayed.push_back(matches(name, o.delayed));
  return r;
}

template <class Module>
DdpOptions for_module(DdpOptions options, const Module& module) {
  check_leaves(options, module);
  return options;
}

// A parameter that was frozen has no place in a bucket: a gradient of its begins a round all the
// same, which refuses it. (A hook can be put on what requires a gradient only.)
std::vector<compat::TensorHook> when_thawed(const NamedTensors& frozen,
                                            const std::function<void()>& begin) {
  std::vector<compat::TensorHook> hooks;
  for (const auto& [name, p] : frozen) {
    if (p.is_inference() || (!p.is_floating_point() && !p.is_complex())) continue;  // never will
    p.set_requires_grad(true);
    hooks.emplace_back(p, begin);
    p.set_requires_grad(false);
  }
  return hooks;
}

NamedTensors all_parameters(DdpTensors t) {
  t.parameters.insert(t.parameters.end(), t.frozen.begin(), t.frozen.end());
  return std::move(t.parameters);
}

}  // namespace

DistributedDataParallel::Impl::Impl(DdpTensors t, Group g, DdpOptions o,
                                    std::function<NamedTensors()> again)
    : group(std::move(g)),
      options(for_first_names(group, std::move(o), t)),
      tensors(synchronised(group, t)),
      dense(part(tensors, options, false)),
      sparse_list(part(tensors, options, true)),
      reducer(dense, group, reducer_options(group, dense, finite, options)),
      joined(reducer.record().add([this] { return has_batch ? 0.0 : 1.0; })),
      weights(reducer.record().add([this] { return weight; })),
      forwards(reducer.record().add([this] { return forward_count; })),
      replaced("DistributedDataParallel", tensors.parameters, tensors.frozen, group,
               reducer.record()),
      list_again(std::move(again)),
      unused(options.find_unused_parameters || options.static_graph ? name_unused(group.rank())
                                                                    : refuse_unused()) {
  GradientRound* round = &reducer;
  if (options.check_finite) finite.attach(reducer.record());
  if (options.static_graph) round = (static_graph = std::make_unique<StaticGraph>(reducer)).get();
  if (!sparse_list.empty())
    round = (sparse = std::make_unique<SparseGradients>(*round, sparse_list, group, op_of(options)))
                .get();
  if (options.leaves)
    round = (leaves = std::make_unique<LeafBackwards>(reducer, options.leaves)).get();
  hooks = std::make_unique<HookAdapter>(*round, HookAdapter::Rounds::automatic);
  hooks->contribute_if([this] { return look(); });
  if (options.before_reducing)
    hooks->on_end([this] {
      const auto abort_with = [this](const std::string& what) {
        group.abort(before_reducing_failure(group.rank(), what));
      };
      try {
        options.before_reducing();
      } catch (const Error& e) {
        if (!is_fact_of_the_group(e)) abort_with(e.what());
        throw;
      } catch (const std::exception& e) {
        abort_with(e.what());
        throw;
      }
    });
  hooks->on_close([this] {
    if (!leaves || leaves->done() == 0) settle();
  });
  thawed = when_thawed(tensors.frozen, hooks->beginning());
}

// A module or a parameter that was replaced leaves ours without a gradient. Listing them takes
// time, so the module is asked once they are others that have none.
bool DistributedDataParallel::Impl::look() {
  if (!unused_changed || !list_again) return replaced.look();
  unused_changed = false;
  return replaced.look(list_again());
}

void DistributedDataParallel::Impl::settle() {
  const std::vector<bool> here = active();
  const auto first = std::find(here.begin(), here.end(), true);
  scale_gradients();
  weight = 0;
  if (first == here.end()) return;
  replaced.check(here);
  const size_t without =
      used_by_fewer_than(static_cast<int>(std::count(here.begin(), here.end(), true))).size();
  unused_changed = std::exchange(unused_before, without) != without;
  trained_last = static_cast<int>(first - here.begin());
  share_buffers(here);
  refuse_together();
}

std::vector<bool> DistributedDataParallel::Impl::active() const {
  std::vector<bool> list;
  for (double gone : reducer.record().of(joined)) list.push_back(gone == 0);
  return list;
}

// avg divided by all ranks; those without a batch do not count.
void DistributedDataParallel::Impl::scale_gradients() {
  const double ranks = group.size(), without = reducer.record().sum(joined);
  total_weight = reducer.record().sum(weights);
  double factor = ranks > without ? ranks / (ranks - without) : 1;
  if (options.mean == GradientMean::of_weights) factor = total_weight > 0 ? 1 / total_weight : 0;
  if (factor == 1) return;
  reducer.scale(factor);
  if (sparse) sparse->scale(factor);
}

void DistributedDataParallel::Impl::share_buffers(const std::vector<bool>& has) {
  if (options.buffers == BufferPolicy::none) return;
  at::NoGradGuard no_grad;
  // The same bytes without the version counter: a forward may have saved the buffer.
  const auto ranks = std::count(has.begin(), has.end(), true);
  const bool mine = has[static_cast<size_t>(group.rank())], all = ranks == group.size();
  std::vector<Work> works;
  std::vector<at::Tensor> sums;
  for (auto& [name, t] : tensors.buffers) {
    at::Tensor data = t.variable_data();
    if (options.buffers != BufferPolicy::mean || !t.is_floating_point()) {
      works.push_back(group.broadcast(data, trained_last));
      continue;
    }
    if (!mine) data.zero_();  // what it holds is of no batch of this round
    works.push_back(group.all_reduce(data, all ? ReduceOp::avg : ReduceOp::sum));
    if (!all) sums.push_back(data);
  }
  for (auto& w : works) w.wait();
  for (auto& data : sums) data.div_(static_cast<double>(ranks));
}

std::vector<ParameterUse> DistributedDataParallel::Impl::used_by_fewer_than(int ranks) const {
  std::vector<ParameterUse> list;
  for (size_t i = 0; i < dense.size(); ++i)
    if (dense[i].second.requires_grad() && reducer.record().used_by(i) < ranks)
      list.push_back({dense[i].first, reducer.record().used_by(i)});
  for (size_t k = 0; k < sparse_list.size(); ++k)
    if (sparse->used_by(k) < ranks) list.push_back({sparse_list[k].first, sparse->used_by(k)});
  return list;
}

// All ranks read the same record, so all throw, or none does.
void DistributedDataParallel::Impl::refuse_together() {
  const RoundRecord& record = reducer.record();
  const std::vector<bool> here = active();
  const auto gone = std::find(here.begin(), here.end(), false);
  const auto round = reducer.stats().rounds;
  if (throw_on_early_termination && gone != here.end())
    throw UsageError(
        fmt::format("rank {} had no batch for round {} and others had: give every rank as many, "
                    "or join() without throw_on_early_termination",
                    gone - here.begin(), round),
        {static_cast<int>(gone - here.begin()), -1, "join", round});
  const auto counts = record.of(forwards);
  int first = -1;
  for (int r = 0; r < group.size(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (!here[i]) continue;
    if (first < 0) first = r;
    if (counts[i] != counts[static_cast<size_t>(first)])
      throw Mismatch(
          fmt::format("in round {} of gradients rank {} has run {} forwards and rank {} {}: the "
                      "loss of one did not depend on the module in some step, or it skipped a "
                      "backward",
                      round, first, counts[static_cast<size_t>(first)], r, counts[i]),
          {first, r, "forward", round});
  }
  if (options.check_finite) {
    const NonFiniteDetector::Found found = finite.found(record);
    if (found.rank >= 0)
      throw NumericError(fmt::format("the gradient of '{}' on rank {} is not finite in round {}",
                                     reducer.name(found.parameter), found.rank, round),
                         {found.rank, -1, "gradient", round});
  }
  if (static_graph) static_graph->check(here);
  const int ranks = static_cast<int>(std::count(here.begin(), here.end(), true));
  unused(used_by_fewer_than(ranks), ranks);
}

bool DistributedDataParallel::Impl::shadow_round() {
  // What is left from this rank's last step is not a part of this one.
  for (const auto& [name, p] : tensors.parameters) p.mutable_grad() = at::Tensor();
  has_batch = false;
  look();
  GradientRound& round = sparse         ? static_cast<GradientRound&>(*sparse)
                         : static_graph ? static_cast<GradientRound&>(*static_graph)
                                        : reducer;
  round.open();
  round.close();
  has_batch = true;
  const std::vector<bool> here = active();
  settle();
  return std::find(here.begin(), here.end(), true) != here.end();
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, Group group,
                                                 DdpOptions options)
    : impl_(std::make_unique<Impl>(ddp_tensors(module), std::move(group),
                                   for_module(std::move(options), module),
                                   [&module] { return all_parameters(ddp_tensors(module)); })) {}

// A handle of its own: the caller's may go.
DistributedDataParallel::DistributedDataParallel(torch::jit::Module& module, Group group,
                                                 DdpOptions options)
    : impl_(std::make_unique<Impl>(
          ddp_tensors(module), std::move(group), for_module(std::move(options), module),
          [again = list_later(module)] { return all_parameters(again()); })) {}

DistributedDataParallel::DistributedDataParallel(NamedTensors parameters, NamedTensors buffers,
                                                 Group group, DdpOptions options)
    : impl_(std::make_unique<Impl>(ddp_tensors(parameters, buffers), std::move(group),
                                   std::move(options))) {}

DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(ddp.impl_->hooks->paused()) {
  check<UsageError>(!ddp.impl_->leaves,
                    "no_sync(): with DdpOptions::leaves the backwards of a round are counted, and "
                    "nothing is reduced before the last one; leave no_sync() out");
  ddp_.impl_->hooks->set_paused(true);
}
DistributedDataParallel::NoSync::~NoSync() { ddp_.impl_->hooks->set_paused(before_); }

void DistributedDataParallel::reduce_accumulated() {
  check<UsageError>(!impl_->leaves,
                    "reduce_accumulated(): with DdpOptions::leaves nothing accumulates without a "
                    "round; leave it out");
  impl_->hooks->reduce_accumulated(true);
}

void DistributedDataParallel::set_weight(double weight) {
  check<UsageError>(
      impl_->options.mean == GradientMean::of_weights,
      "set_weight() needs DdpOptions::mean = GradientMean::of_weights, on every rank");
  check<UsageError>(weight >= 0, "a loss over {} samples", weight);
  impl_->weight += weight;
}
double DistributedDataParallel::total_weight() const { return impl_->total_weight; }

void DistributedDataParallel::count_forward() {
  if (at::GradMode::is_enabled()) ++impl_->forward_count;
}

at::Tensor DistributedDataParallel::at_backward(const at::Tensor& output) {
  if (!impl_->static_graph) return output;
  return begin_round_with(output, impl_->hooks->beginning());
}

std::vector<std::string> DistributedDataParallel::unused_parameters() const {
  std::vector<std::string> names;
  for (auto& use : impl_->used_by_fewer_than(1)) names.push_back(use.name);
  return names;
}

void DistributedDataParallel::zero_grad() {
  const int done = impl_->leaves ? impl_->leaves->done() : 0;
  check<UsageError>(done == 0,
                    "zero_grad() after {} of the {} backwards that make a round "
                    "(DdpOptions::leaves): their gradients are not reduced yet; run the others "
                    "first, or reset() on every rank to drop them",
                    done, impl_->options.leaves);
  for (const auto& [name, p] : impl_->tensors.parameters) p.mutable_grad() = at::Tensor();
}

void DistributedDataParallel::reset() { impl_->hooks->reset(); }
const Reducer& DistributedDataParallel::reducer() const { return impl_->reducer; }

}  // namespace trireme
