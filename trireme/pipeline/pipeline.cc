// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/pipeline.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/comm/objects.h"
#include "trireme/pipeline/schedule/check.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/units.h"
#include "trireme/pipeline/stage_work.h"
#include "trireme/pipeline/tensor_messages.h"
#include "trireme/tensor/missing_operator.h"

namespace trireme {

using pipeline::Action;
using pipeline::ActionKind;
using pipeline::Schedule;
using pipeline::StageWork;
using pipeline::TensorMessages;

namespace {

enum Direction { forwards, backwards };

// With what the schedule leaves to others: messages, and units where somebody wants to hear of
// them.
Schedule complete(Schedule schedule, const PipelineOptions& options) {
  const bool units = options.unshard || options.reshard || options.reduce_gradients;
  if (units && !schedule.has_units()) schedule = place_units(schedule);
  if (!schedule.has_messages()) schedule = place_messages(schedule);
  return schedule;
}

std::string fault_of(const Schedule& schedule, const std::vector<PipelineStage>& stages, int rank,
                     int ranks) {
  if (schedule.ranks() != ranks)
    return fmt::format("the schedule '{}' is for {} ranks, and the group has {}", schedule.name,
                       schedule.ranks(), ranks);
  if (const auto finding = check_schedule(schedule)) return finding->sentence;
  std::map<int, int> given;
  for (const PipelineStage& stage : stages) ++given[stage.index];
  for (int s = 0; s < schedule.stages(); ++s) {
    const bool here = schedule.rank_of_stage[static_cast<size_t>(s)] == rank;
    if (here != (given[s] == 1))
      return fmt::format("rank {} was given stage {} {}, and the schedule '{}' puts it on rank {}",
                         rank, s,
                         given[s] == 0   ? "not at all"
                         : given[s] == 1 ? "once"
                                         : "more than once",
                         schedule.name, schedule.rank_of_stage[static_cast<size_t>(s)]);
    given.erase(s);
  }
  if (!given.empty())
    return fmt::format("rank {} was given stage {}, and the schedule '{}' has stages 0 to {}", rank,
                       given.begin()->first, schedule.name, schedule.stages() - 1);
  for (const PipelineStage& stage : stages)
    if (!stage.forward) return fmt::format("stage {} has no forward", stage.index);
  return "";
}

}  // namespace

struct Pipeline::Impl {
  Impl(Group ranks, Schedule given, std::vector<PipelineStage> list, PipelineOptions o)
      : group(std::move(ranks)), options(std::move(o)), table(std::move(given)) {
    std::string fault;
    try {
      table = complete(std::move(table), options);
      fault = fault_of(table, list, group.rank(), group.size());
    } catch (const UsageError& e) {
      fault = e.what();
    }
    const auto faults = all_gather_object(group, fault);
    for (const std::string& text : faults) check<UsageError>(text.empty(), "pipeline: {}", text);
    const auto tables = all_gather_object(group, std::hash<std::string>()(write_table(table)));
    for (size_t r = 1; r < tables.size(); ++r)
      check<UsageError>(tables[r] == tables[0],
                        "pipeline: ranks 0 and {} were given different schedules", r);
    for (PipelineStage& stage : list) stages.emplace(stage.index, std::move(stage));
  }

  Group group;
  PipelineOptions options;
  Schedule table;
  std::map<int, PipelineStage> stages;  // of this rank, by index

  int rank_of(int stage) const { return table.rank_of_stage[static_cast<size_t>(stage)]; }
  bool here(int stage) const { return stages.count(stage) > 0; }
  int last() const { return table.stages() - 1; }
  // Of what stage `target` receives.
  int tag(int target, int micro_batch, Direction direction) const {
    return 2 * (target * table.micro_batches + micro_batch) + direction;
  }

  /// Ends the group if `body` fails for a reason that the other ranks cannot know.
  template <class Body>
  void for_all(int stage, int micro_batch, const Body& body) {
    try {
      naming_missing_operator(options.device, body);
    } catch (const Error& e) {
      const std::string kind = e.kind();
      if (kind != "Mismatch" && kind != "PeerLost" && kind != "Timeout" && kind != "Aborted")
        tell(stage, micro_batch, e.what());
      throw;
    } catch (const std::exception& e) {
      tell(stage, micro_batch, brief(e));
      throw;
    }
  }
  template <class Body>
  void compute(const Action& a, const Body& body) const {
    if (options.around && is_compute(a.kind))
      options.around(a, body);
    else
      body();
  }
  void tell(int stage, int micro_batch, const std::string& what) {
    const int rank = group.world_ranks()[static_cast<size_t>(group.rank())];
    group.abort(fmt::format("rank {} failed in stage {}, micro-batch {}: {}", rank, stage,
                            micro_batch, what));
  }
};

namespace {

/// One step: walks this rank's list.
class Step {
 public:
  Step(Pipeline::Impl& pipeline, const Pipeline::Inputs& inputs, const Pipeline::Loss& loss);
  void walk();
  std::vector<at::Tensor> losses;

 private:
  void act(const Action& a);
  void forward(const Action& a);
  void give_back(const Action& a, StageWork& work);
  StageWork& at(const Action& a) { return work_[{a.stage, a.micro_batch}]; }

  Pipeline::Impl& p_;
  const Pipeline::Inputs& inputs_;
  const Pipeline::Loss& loss_;
  TensorMessages messages_;
  std::map<std::pair<int, int>, StageWork> work_;
};

Step::Step(Pipeline::Impl& pipeline, const Pipeline::Inputs& inputs, const Pipeline::Loss& loss)
    : p_(pipeline), inputs_(inputs), loss_(loss), messages_(p_.group, p_.options.device) {
  if (p_.here(p_.last())) losses.resize(static_cast<size_t>(p_.table.micro_batches));
}

void Step::walk() {
  c10::AutoGradMode grad(true);
  for (const Action& a : p_.table.actions[static_cast<size_t>(p_.group.rank())]) {
    p_.for_all(a.stage, a.micro_batch, [&] { p_.compute(a, [&] { act(a); }); });
    messages_.progress();
  }
  messages_.finish();
}

// The schedule in motion. A message is named by the stage that it goes to.
void Step::act(const Action& a) {
  switch (a.kind) {
    case ActionKind::forward:
      return forward(a);
    case ActionKind::backward: {
      Span span("compute", "backward of a stage");
      at(a).backward();
      return give_back(a, at(a));
    }
    case ActionKind::input_gradient: {
      Span span("compute", "input gradient of a stage");
      at(a).input_gradient();
      return give_back(a, at(a));
    }
    case ActionKind::weight_gradient: {
      Span span("compute", "weight gradient of a stage");
      return at(a).weight_gradient();
    }
    case ActionKind::send_forward:
      return messages_.send(at(a).outputs, p_.rank_of(a.stage + 1),
                            p_.tag(a.stage + 1, a.micro_batch, forwards));
    case ActionKind::recv_forward:
      at(a).inputs =
          messages_.recv(p_.rank_of(a.stage - 1), p_.tag(a.stage, a.micro_batch, forwards));
      return;
    case ActionKind::send_backward:
      messages_.send_known(std::exchange(at(a).input_gradients, {}), p_.rank_of(a.stage - 1),
                           p_.tag(a.stage - 1, a.micro_batch, backwards));
      return;
    case ActionKind::recv_backward:
      at(a).output_gradients =
          messages_.recv_like(StageWork::trained(at(a).outputs), p_.rank_of(a.stage + 1),
                              p_.tag(a.stage, a.micro_batch, backwards));
      return;
    case ActionKind::unshard:
      if (p_.options.unshard) p_.options.unshard(a.stage);
      return;
    case ActionKind::reshard:
      if (p_.options.reshard) p_.options.reshard(a.stage);
      return;
    case ActionKind::reduce_gradients:
      if (p_.options.reduce_gradients) p_.options.reduce_gradients(a.stage);
      return;
  }
}

void Step::forward(const Action& a) {
  Span span("compute", "forward of a stage");
  StageWork& work = at(a);
  if (a.stage == 0) work.inputs = inputs_(a.micro_batch);
  work.outputs = p_.stages.at(a.stage).forward(work.inputs, a.micro_batch);
  if (a.stage == 0) work.inputs.clear();  // nobody waits for their gradients
  if (a.stage < p_.last()) {
    if (p_.here(a.stage + 1))
      work_[{a.stage + 1, a.micro_batch}].inputs = StageWork::leaves_of(work.outputs);
    return;
  }
  const at::Tensor loss = loss_(work.outputs, a.micro_batch);
  check<UsageError>(loss.defined() && loss.numel() == 1,
                    "the loss of a micro-batch is one number, and this one has {}",
                    loss.defined() ? loss.numel() : 0);
  check<UsageError>(
      loss.requires_grad() || work.inputs.empty() || StageWork::trained(work.inputs).empty(),
      "the loss does not depend on the last stage's inputs");
  losses[static_cast<size_t>(a.micro_batch)] = loss.detach();
  work.outputs = {loss};
}

// Hands a gradient to the stage before, where that is on this rank.
void Step::give_back(const Action& a, StageWork& work) {
  if (a.stage > 0 && p_.here(a.stage - 1))
    work_[{a.stage - 1, a.micro_batch}].output_gradients = std::exchange(work.input_gradients, {});
}

}  // namespace

Pipeline::Pipeline(Group group, Schedule schedule, std::vector<PipelineStage> stages,
                   PipelineOptions options)
    : impl_(std::make_unique<Impl>(std::move(group), std::move(schedule), std::move(stages),
                                   std::move(options))) {}
Pipeline::~Pipeline() = default;

std::vector<at::Tensor> Pipeline::step(const Inputs& inputs, const Loss& loss) {
  check<UsageError>(!has_first_stage() || inputs, "pipeline: the first stage's rank needs inputs");
  check<UsageError>(!has_last_stage() || loss, "pipeline: the last stage's rank needs a loss");
  Step step(*impl_, inputs, loss);
  step.walk();
  return std::move(step.losses);
}

// One micro-batch after the other through this rank's stages: every rank meets them in that order.
std::vector<Pipeline::Tensors> Pipeline::evaluate(const Inputs& inputs) {
  return evaluate(inputs, impl_->table.micro_batches);
}

std::vector<Pipeline::Tensors> Pipeline::evaluate(const Inputs& inputs, int micro_batches) {
  check<UsageError>(!has_first_stage() || inputs, "pipeline: the first stage's rank needs inputs");
  Impl& p = *impl_;
  c10::AutoGradMode no_grad(false);
  TensorMessages messages(p.group, p.options.device);
  std::vector<Tensors> results;
  for (int i = 0; i < micro_batches; ++i) {
    Tensors passed;  // from a stage of this rank to the next
    for (const auto& [s, stage] : p.stages)
      p.for_all(s, i, [&, s = s, &stage = stage] {
        Span span("evaluate", "forward of a stage");
        if (s == 0)
          passed = inputs(i);
        else if (!p.here(s - 1))
          passed = messages.recv(p.rank_of(s - 1), p.tag(s, i, forwards));
        p.compute({ActionKind::forward, s, i}, [&] { passed = stage.forward(passed, i); });
        if (s == p.last())
          results.push_back(passed);
        else if (!p.here(s + 1))
          messages.send(passed, p.rank_of(s + 1), p.tag(s + 1, i, forwards));
        messages.progress();
      });
  }
  messages.finish();
  return results;
}

bool Pipeline::has_first_stage() const { return impl_->here(0); }
bool Pipeline::has_last_stage() const { return impl_->here(impl_->last()); }
const Schedule& Pipeline::schedule() const { return impl_->table; }

}  // namespace trireme
