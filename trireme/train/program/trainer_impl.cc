// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/trainer_impl.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <list>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/base/trace.h"
#include "trireme/comm/objects.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/tensor/layout_state.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/data_place.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/model_axes/model_group.h"
#include "trireme/train/program/chain_program.h"
#include "trireme/train/saving.h"
#include "trireme/train/step.h"

namespace trireme {
namespace {

// Which steps are deleted is decided after the new one is there (train/run_saves.h).
constexpr int kAllStay = std::numeric_limits<int>::max();

/// While it exists, the parameters of other updates are whole and constant.
class OthersAreConstants {
 public:
  OthersAreConstants(const std::vector<std::unique_ptr<Trainer::Impl::Part>>& parts,
                     const Trainer::Impl::Part& active) {
    for (const auto& part : parts) {
      if (part.get() == &active || !part->model) continue;
      if (auto* sharded = dynamic_cast<FullySharded*>(part->run.gradients->sharded()))
        whole_.emplace_back(*sharded);
      for (at::Tensor& p : part->model->parameters())
        if (p.requires_grad()) {
          p.set_requires_grad(false);
          frozen_.push_back(p);
        }
    }
  }
  ~OthersAreConstants() {
    for (at::Tensor& p : frozen_) p.set_requires_grad(true);
  }
  OthersAreConstants(const OthersAreConstants&) = delete;

 private:
  std::list<FullySharded::Gathered> whole_;
  std::vector<at::Tensor> frozen_;
};

/// Returns the factor of each term, so that dividing by the micro-batches' weight makes each term a
/// mean over its own weight. {}: all terms have the micro-batches' weight.
std::map<std::string, double> factors_of(Program& program, const Batch& batch, Group dp) {
  std::vector<std::string> names;
  std::vector<double> sums{0};
  for (const MicroBatch& micro : batch) {
    const TermWeights weights = program.weights(micro);
    if (names.empty())
      for (const auto& [name, w] : weights) names.push_back(name), sums.push_back(0);
    check<UsageError>(weights.size() == names.size(),
                      "Program::weights() returned {} terms for one micro-batch and {} for another",
                      names.size(), weights.size());
    sums[0] += static_cast<double>(micro.weight);
    for (size_t i = 0; i < names.size(); ++i) {
      check<UsageError>(weights[i].first == names[i],
                        "Program::weights() returned the terms in another order: '{}' for '{}'",
                        weights[i].first, names[i]);
      if (micro.weight > 0) sums[i + 1] += weights[i].second;  // else its rows are another's
    }
  }
  if (names.empty()) return {};
  at::Tensor wire = at::empty({static_cast<int64_t>(sums.size())}, at::kDouble);
  std::copy(sums.begin(), sums.end(), static_cast<double*>(wire.data_ptr()));
  dp.all_reduce(wire).wait();
  const auto* all = static_cast<const double*>(wire.data_ptr());
  std::map<std::string, double> factors;
  for (size_t i = 0; i < names.size(); ++i)
    factors[names[i]] = all[i + 1] > 0 ? all[0] / all[i + 1] : 0;
  return factors;
}

/// Prefixes the names of an update's state, except those of pieces.
class Prefixed final : public ForwardingVisitor {
 public:
  Prefixed(StateVisitor& inner, std::string prefix)
      : ForwardingVisitor(inner), prefix_(std::move(prefix)) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    Slice named = slice;
    named.name = of(slice.name);
    inner_.tensor(named, std::move(local));
  }
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override {
    inner_.copy_of_rank_0(of(name), std::move(whole));
  }
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override {
    inner_.rank_tensor(of(name), rank, ranks, rule, std::move(local));
  }
  void value(const std::string& name, int64_t& v) override { inner_.value(of(name), v); }
  void value(const std::string& name, double& v) override { inner_.value(of(name), v); }
  void value(const std::string& name, std::string& v) override { inner_.value(of(name), v); }
  void constant(const std::string& name, const std::string& v) override {
    inner_.constant(of(name), v);
  }

 private:
  std::string of(const std::string& name) const {
    return name.starts_with("model.") ? name : prefix_ + name;
  }
  const std::string prefix_;
};

using Averaged = std::list<GradientSyncStrategy::AveragedWeightsGuard>;

}  // namespace

StepReport Trainer::Impl::update(const std::string& name, const Batch& batch, const Loss& loss) {
  if (is_asynchronous(first().device) && !is_on(batch, first().device))
    return update(name, on_device(batch, first().device), loss);  // the program's own batches
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const auto& part) { return part->name == name; });
  check<UsageError>(found != parts.end(), "Trainer::update(): there is no update '{}'", name);
  Part& part = **found;
  if (built_in) {
    check<UsageError>(!loss, "the built-in models have a loss of their own");
    const StepReport report = heard_in(train_on(part.run, batch, wish.code()));
    done.push_back({part.name, &part.run, report, {}});
    return report;
  }
  check<UsageError>(!network.training, "Trainer::update() was called inside of a loss");
  check<UsageError>(!batch.empty(), "Trainer::update('{}'): the batch has no micro-batch", name);
  check<UsageError>(!stages || !loss,
                    "Trainer::update('{}'): the loss of a pipeline is ChainProgram::loss_of(): "
                    "give no other one",
                    name);
  part.loss = loss;
  part.sums.clear();
  try {
    Group dp = part.run.data_parallel();
    abort_group_on_error(part.run, [&] { part.factors = factors_of(program, batch, dp); });
    StepReport report;
    {
      const OthersAreConstants constants(parts, part);
      struct Training {
        bool& on;
        explicit Training(bool& flag) : on(flag) { on = true; }
        ~Training() { on = false; }
      } training(network.training);
      report = heard_in(train_on(part.run, batch, wish.code()));
    }
    done.push_back({name, &part.run, report, means_of_terms(part, report.weight)});
    return report;
  } catch (const Error& e) {
    pass_on(part.run, e);
    throw;
  }
}

std::vector<std::pair<std::string, double>> Trainer::Impl::means_of_terms(Part& part,
                                                                          int64_t weight) {
  std::vector<std::pair<std::string, double>> means;
  if (!part.sums.empty()) {
    at::Tensor wire = at::empty({static_cast<int64_t>(part.sums.size())}, at::kDouble);
    auto* sums = static_cast<double*>(wire.data_ptr());
    size_t i = 0;
    for (auto& [term, all] : part.sums)
      sums[i++] = std::accumulate(all.read().begin(), all.read().end(), 0.0);
    part.run.data_parallel().all_reduce(wire).wait();
    i = 0;
    for (const auto& [term, all] : part.sums)
      means.emplace_back(term, sums[i++] / static_cast<double>(weight));
  }
  if (stages)  // the ranks of the last stage know them
    for (auto& of_rank : all_gather_object(part.run.mesh.group("pp"), means))
      if (!of_rank.empty()) means = std::move(of_rank);
  return means;
}

StepReport Trainer::Impl::heard_in(StepReport report) {
  heard = std::max(heard, report.stop);
  report.stop = StepWish::of(report.stop).stop;
  return report;
}

StepWish Trainer::Impl::take_step(StepWish wish_here) {
  wish = wish_here;
  heard = 0;
  done.clear();
  if (!built_in) {
    // The program's random numbers (noise, actions) depend on the step, so that a resumed run draws
    // the same ones.
    const uint64_t seed =
        stable_hash({static_cast<uint64_t>(first().seed), static_cast<uint64_t>(step),
                     static_cast<uint64_t>(first().data_parallel().rank())});
    generator.set_current_seed(seed);
    const auto stage = stages ? static_cast<uint64_t>(first().mesh.coordinate("pp")) : 0;
    seed_default_generator(stage ? stable_hash({seed, stage}) : seed);
  }
  Trainer* self = owner;
  program.step(*self);
  ++step;
  for (auto& part : parts) part->run.in_update = false;
  if (!done.empty()) return StepWish::of(heard);
  at::Tensor asked = at::empty({1}, at::kLong);
  *static_cast<int64_t*>(asked.data_ptr()) = wish_here.code();
  Group all = group;
  all.all_reduce(asked, ReduceOp::max).wait();
  return StepWish::of(static_cast<int>(*static_cast<const int64_t*>(asked.data_ptr())));
}

int64_t Trainer::Impl::epoch_ended() const {
  const auto next = first().plan->origin_at(step);
  return next && next->at.sample == 0 ? next->at.epoch : 0;
}

void Trainer::Impl::evaluate(const MicroBatch& micro, HeldOutSums& sums) {
  if (stages) {
    if (const auto outputs = first().computation->outputs(first(), micro))
      dynamic_cast<ChainProgram&>(program).evaluate_outputs(*outputs, micro, sums);
    return;
  }
  // Nests the scopes of all parts, so that the pieces of all of them are whole.
  ProgramModel::Body body = [&] {
    program.evaluate(net, micro, sums);
    return std::vector<at::Tensor>();
  };
  for (auto& part : parts)
    body = [&part, inner = std::move(body)] {
      return part->model->within(*part->run.compute, inner);
    };
  body();
}

std::vector<HeldOutSums::Sum> Trainer::Impl::evaluate() {
  Averaged one;
  for (auto& part : parts) one.emplace_back(*part->run.exchange);
  for (auto& part : parts) part->model->eval();
  if (fixed) fixed->eval();
  HeldOutSums mine;
  for_held_out(first(), [&](const MicroBatch& micro, bool counts) {
    HeldOutSums sums;
    sums.set_counts(counts);
    evaluate(micro, sums);
    if (!counts) return;
    for (const auto& s : sums.all()) mine.add(s.name, s.sum, s.weight);
  });
  for (auto& part : parts) part->model->train();
  if (fixed) fixed->train();
  using Row = std::pair<std::string, std::pair<double, double>>;
  std::vector<Row> rows;
  // Ranks that hold parts of the same layers have computed the same.
  if (first().mesh.coordinate("tp") == 0)
    for (const auto& s : mine.all()) rows.push_back({s.name, {s.sum, s.weight}});
  HeldOutSums total;
  Group all = group;
  for (const auto& of_rank : all_gather_object(all, rows))
    for (const Row& row : of_rank) total.add(row.first, row.second.first, row.second.second);
  program.evaluated(total, all);
  std::erase_if(total.all(), [](const HeldOutSums::Sum& s) { return s.weight == 0; });
  return total.all();
}

std::optional<Evaluation> Trainer::Impl::built_in_evaluation() {
  if (!built_in) return std::nullopt;
  const GradientSyncStrategy::AveragedWeightsGuard one(*first().exchange);
  return trireme::evaluate(first());
}

void Trainer::Impl::fixed_state(StateVisitor& visitor) {
  LayoutVisitor whole(visitor, fixed_layouts, first_replica(first().mesh));
  model_state(*fixed, named_parameters(*fixed), whole);
}

void Trainer::Impl::state(StateVisitor& visitor) {
  // A load takes it before the run is built (train/data_place.h).
  if (Run& run = first(); visitor.saving()) {
    if (run.loader)
      if (const auto origin = run.plan->origin_at(run.loader->step()))
        show_data_origin(visitor, *origin);
    if (!run.data_contents.empty()) visitor.value(kDataContents, run.data_contents);
  }
  if (built_in) return first().state(visitor);
  for (auto& part : parts) {
    Prefixed own(visitor, parts.size() > 1 ? "updates." + part->name + "." : "");
    part->run.state(own);
  }
  if (fixed) fixed_state(visitor);
  Prefixed of_program(visitor, "program.");
  program.state(of_program);
  visitor.value("trainer.step", step);
}

void Trainer::Impl::state(StateVisitor& visitor, std::optional<double> held_out_loss) {
  state(visitor);
  if (held_out_loss) visitor.value(kHeldOutLoss, *held_out_loss);
}

std::string Trainer::Impl::save(const std::string& folder, std::optional<double> held_out_loss) {
  Averaged one;
  for (auto& part : parts) one.emplace_back(*part->run.exchange);
  return save_state(
      group, folder, step, first().exchange->layout(),
      [&](StateVisitor& v) { state(v, held_out_loss); }, kAllStay);
}

void Trainer::Impl::save(AsyncSaver& saver, std::optional<double> held_out_loss,
                         AsyncSaver::Published published) {
  Averaged one;
  for (auto& part : parts) one.emplace_back(*part->run.exchange);
  saver.save(
      step, [&](StateVisitor& v) { state(v, held_out_loss); },
      {first().exchange->layout(), kAllStay, true}, std::move(published));
}

void Trainer::Impl::hold(AsyncSaver& saver) {
  Averaged one;
  for (auto& part : parts) one.emplace_back(*part->run.exchange);
  saver.hold(step, [&](StateVisitor& v) { state(v); },
             {first().exchange->layout(), kAllStay, true});
}

CheckpointInfo Trainer::Impl::load(const std::string& path, const std::shared_ptr<HeldStep>& held) {
  Averaged loading;
  for (auto& part : parts) loading.emplace_back(*part->run.exchange, true);
  LoadOptions options;
  options.group = group;
  for (auto& part : parts) options.tied = with_copies(std::move(options.tied), part->run.layouts);
  const StateWalk walk = [&](StateVisitor& v) { state(v); };
  const CheckpointInfo info =
      held ? load_state(held, walk, options) : load_state(path, walk, options);
  for (auto& part : parts) part->run.loaded();
  if (built_in) step = first().step;
  return info;
}

}  // namespace trireme
