// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/recompute.h"
#include "trireme/config/sections/zero.h"
#include "trireme/layers/context_parallel/context_plan.h"
#include "trireme/planner/exchange_memory.h"
#include "trireme/planner/group_memory.h"
#include "trireme/planner/snapshot_memory.h"

namespace trireme {
namespace {

constexpr double kMiB = 1048576;

int bytes_of(const std::string& type) { return type == "fp32" ? 4 : 2; }

/// Which of DeepSpeed's and Apex's sections stores weights in half precision: fp16, bf16 or fp32.
std::string stored_type(const PrecisionSection& p) {
  if (p.fp16.enabled) return "fp16";
  if (p.bf16.enabled) return "bf16";
  const std::string level = p.amp.enabled ? p.amp.opt_level : "O0";
  return level == "O2" || level == "O3" ? p.amp.dtype : "fp32";
}

OptimizerShape optimizer_of(const OptimizerSection& s) {
  OptimizerShape o{s.type};
  o.momentum = s.momentum > 0;
  o.centered = s.centered;
  o.amsgrad = s.amsgrad;
  return o;
}

void read_precision(const Config& c, MemoryQuestion* q) {
  const auto precision = c.section<PrecisionSection>();
  const std::string type = stored_type(precision);
  q->weight_bytes = q->gradient_bytes = bytes_of(type);
  const auto& wire = precision.communication_data_type;
  q->wire_bytes = wire ? bytes_of(*wire) : q->gradient_bytes;
  q->master_bytes = type == "fp32" ? 0 : 4;
  q->compute_bytes = type == "fp16" && precision.fp16.emulate ? 4 : 0;
}

MeshShape mesh_of(const MemoryPlan& plan, int world) {
  return MeshShape(world, parallel_axes({.dp_replicate = plan.sharding.dp_replicate,
                                         .dp_shard = plan.sharding.dp_shard,
                                         .cp = plan.degrees.cp,
                                         .tp = plan.degrees.tp,
                                         .pp = plan.degrees.pp}));
}

void read_zero(const Config& c, MemoryQuestion* q) {
  const auto zero = c.section<ZeroSection>();
  const auto offload = c.section<OffloadSection>();
  const auto comm = c.section<CommSection>();
  q->share_weights = zero.share_weights;
  const double bucket_mb = comm.bucket_mb > 0 ? comm.bucket_mb : comm.backend == "local" ? 4 : 25;
  q->bucket_elements =
      zero.reduce_bucket_size.value_or(static_cast<int64_t>(bucket_mb * kMiB / q->gradient_bytes));
  q->prefetch_elements = zero.prefetch_bucket_size.value_or(0);
  q->persistence_threshold = zero.param_persistence_threshold.value_or(0);
  q->live_elements = zero.max_live_parameters.value_or(0);
  q->states_on_disk = offload.optimizer.on_disk();
  q->parameters_on_disk = offload.parameters.on_disk();
  q->state_buffer_elements = q->states_on_disk ? offload.sub_group_size : 0;
  if (q->states_on_disk) {  // one part is stepped; with a pipeline another is read, one written
    q->state_buffer_elements *=
        1 + offload.optimizer.pipeline_read + offload.optimizer.pipeline_write;
  }
  if (q->parameters_on_disk)
    q->parameter_buffer_elements =
        offload.parameters.buffer_count * offload.parameters.buffer_size +
        offload.parameters.max_in_cpu;
}

ExchangeShape exchange_of(const Config& c, const MemoryQuestion& q, int ranks) {
  ExchangeShape e;
  e.ranks = ranks;
  e.gradient_bytes = q.gradient_bytes;
  const auto averaging = c.section<AveragingSection>();
  e.averaging = averaging.type;
  e.pseudo_gradients.type = averaging.compression;
  e.gradients = c.section<CompressionSection>().codec;
  return e;
}

int64_t recomputed_blocks(const Config& c, const ActivationQuestion& q) {
  const auto [every, budget_mb] = c.section<RecomputeSection>();
  if (budget_mb > 0) return blocks_to_recompute(q, static_cast<int64_t>(budget_mb * kMiB));
  return every > 0 ? q.model.layers / every : 0;
}

MemoryPlan plan_states(const Config& c, int world, ModelShape model,
                       std::vector<ParameterShape> of_a_rank) {
  MemoryPlan plan;
  plan.degrees = c.resolve_degrees(world);
  plan.batches = c.resolve_batches(world);
  plan.sharding = c.resolve_sharding(world);
  plan.sequence_parallel = plan.degrees.tp > 1 && c.section<ParallelismSection>().sequence_parallel;
  plan.model = std::move(model);
  MemoryQuestion& q = plan.question;
  q.parameters = std::move(of_a_rank);
  q.optimizer = optimizer_of(c.section<OptimizerSection>());
  q.stage = plan.sharding.stage;
  q.dp_shard = plan.sharding.dp_shard * plan.degrees.cp;  // what ZeRO divides over
  q.whole_for_step = q.stage == 3 && plan.degrees.pp > 1;
  read_precision(c, &q);
  read_zero(c, &q);
  if (c.section<CommSection>().backend == "local")
    q.group_bytes = local_group_bytes(mesh_of(plan, world));
  const ExchangeShape exchange = exchange_of(c, q, plan.degrees.dp);
  q.exchange_bytes = exchange_bytes(exchange, q.parameters);
  const auto checkpoint = c.section<CheckpointSection>();
  if (checkpoint.makes_snapshots()) q.snapshot_bytes = snapshot_bytes(q, exchange);
  plan.rank = plan.mean = rank_memory(q);
  return plan;
}

/// A micro-batch's, of a rank that computes all blocks.
void add_activations(const Config& c, ActivationQuestion a, MemoryPlan* plan) {
  plan->recomputed = a.recomputed = recomputed_blocks(c, a);
  plan->activations = activation_memory(a);
}

/// Those under way at once on a rank of a pipeline; returns a micro-batch's, by stage.
std::vector<ActivationMemory> add_activations(const Config& c, ActivationQuestion a,
                                              const pipeline::PipelinePlan& stages, int rank,
                                              MemoryPlan* plan) {
  const int64_t every = c.section<RecomputeSection>().recompute_every;
  std::vector<ActivationMemory> of_a_stage(stages.stages.size());
  int64_t blocks = 0;  // of this rank, every so many of which are recomputed
  for (size_t s = 0; s < stages.stages.size(); ++s) {
    if (stages.schedule.rank_of_stage[s] != rank) continue;
    const pipeline::StageBlocks& stage = stages.stages[s];
    const int64_t before = blocks;
    blocks += stage.end - stage.begin;
    a.part.stages = {stage};
    a.recomputed = every > 0 ? blocks / every - before / every : 0;
    plan->recomputed += a.recomputed;
    of_a_stage[s] = activation_memory(a);
  }
  plan->activations = pipeline_activations(stages.schedule, rank, of_a_stage);
  return of_a_stage;
}

/// What a stage has of its rank's memory: its parameters, their gradients and states, and, of
/// `micro_batch` (by stage), what its own micro-batches under way keep.
StageMemory stage_memory(MemoryQuestion q, std::vector<ParameterShape> parameters,
                         const pipeline::PipelinePlan& plan, size_t stage,
                         const std::vector<ActivationMemory>& micro_batch) {
  q.parameters = std::move(parameters);
  const RankMemory all = rank_memory(q);
  std::vector<ActivationMemory> alone(plan.stages.size());
  if (!micro_batch.empty()) alone[stage] = micro_batch[stage];
  const int rank = plan.schedule.rank_of_stage[stage];
  RankMemory own;
  own.weights = all.weights;
  own.gradients = all.gradients;
  own.optimizer = all.optimizer;
  own.activations = pipeline_activations(plan.schedule, rank, alone).peak;
  return {static_cast<int>(stage), "", own};
}

/// The most blocks that a rank's schedule gathers at once; 0: it leaves that to the step.
int64_t whole_blocks(const pipeline::PipelinePlan& plan, int rank) {
  std::set<int> whole;
  int64_t most = 0;
  for (const pipeline::Action& a : plan.schedule.actions[static_cast<size_t>(rank)]) {
    if (a.kind == pipeline::ActionKind::unshard) whole.insert(a.stage);
    if (a.kind == pipeline::ActionKind::reshard) whole.erase(a.stage);
    int64_t blocks = 0;
    for (const int stage : whole) {
      const auto& of = plan.stages[static_cast<size_t>(stage)];
      blocks += of.end - of.begin;
    }
    most = std::max(most, blocks);
  }
  return most;
}

/// What people call the blocks of a rank.
std::string blocks_text(const std::vector<pipeline::StageBlocks>& stages,
                        const std::function<std::string(const pipeline::StageBlocks&)>& name) {
  std::string text;
  for (const auto& stage : stages) text += (text.empty() ? "" : "; ") + name(stage);
  return text;
}

std::string text_of_gpt(const pipeline::StageBlocks& stage) {
  std::string text = stage.end - stage.begin == 1
                         ? std::to_string(stage.begin)
                         : fmt::format("{}-{}", stage.begin, stage.end - 1);
  if (stage.first) text = "embedding, " + text;
  if (stage.last) text += ", head";
  return text;
}

/// The plan of the rank with the most, and what they have on average.
MemoryPlan fullest_of(std::vector<MemoryPlan> ranks) {
  const auto total = [](const MemoryPlan& p) { return p.rank.total(); };
  RankMemory mean;
  for (int64_t RankMemory::*row :
       {&RankMemory::weights, &RankMemory::gradients, &RankMemory::optimizer,
        &RankMemory::activations, &RankMemory::buffers, &RankMemory::snapshots}) {
    for (const MemoryPlan& p : ranks) mean.*row += p.rank.*row;
    mean.*row /= static_cast<int64_t>(ranks.size());
  }
  std::vector<PipelineRank> pipeline;
  for (MemoryPlan& p : ranks)
    for (PipelineRank& own : p.pipeline) {
      if (own.stages.size() < 2) own.stages.clear();  // it is the rank's row
      pipeline.push_back({std::move(own.blocks), p.rank, std::move(own.stages)});
    }
  MemoryPlan fullest = *std::max_element(
      ranks.begin(), ranks.end(),
      [&](const MemoryPlan& x, const MemoryPlan& y) { return total(x) < total(y); });
  fullest.mean = mean;
  fullest.pipeline = std::move(pipeline);
  return fullest;
}

std::string count_of_ranks(int64_t n) { return fmt::format("{} {}", n, n == 1 ? "rank" : "ranks"); }

/// "2 ranks of data parallelism × 2 of tensor parallelism; "; "" for a model that is not divided.
std::string describe_degrees(const MemoryPlan& plan) {
  const Degrees& d = plan.degrees;
  if (d.together() == 1) return "";
  std::string text = fmt::format("{} of data parallelism", count_of_ranks(d.dp));
  if (d.cp > 1) text += fmt::format(" × {} of context parallelism", d.cp);
  if (d.tp > 1)
    text += fmt::format(" × {} of tensor {}parallelism", d.tp,
                        plan.sequence_parallel ? "and sequence " : "");
  if (d.pp > 1) text += fmt::format(" × {} of pipeline parallelism", d.pp);
  return text + "; ";
}

std::string describe_zero(const MemoryPlan& plan) {
  const MemoryQuestion& q = plan.question;
  if (q.stage == 0)
    return plan.degrees.together() > 1
               ? "no ZeRO"
               : fmt::format("{}, no ZeRO", count_of_ranks(plan.batches.dp));
  std::string text = fmt::format("ZeRO-{} over {}", q.stage, count_of_ranks(q.dp_shard));
  if (plan.sharding.dp_replicate > 1) text += fmt::format(", {} times", plan.sharding.dp_replicate);
  return text;
}

// What a rank's activations are of, where ranks divide the positions of a row: of the fullest.
int64_t positions_of_a_rank(const Config& c, const ModelGeometry& model) {
  const auto parallelism = c.section<ParallelismSection>();
  if (parallelism.cp == 1) return model.context;
  return most_context_places(
      model.context, parallelism.cp,
      parallelism.cp_balance == "none" ? ContextBalance::none : ContextBalance::head_tail);
}

}  // namespace

MemoryPlan plan_memory(const Config& c, int world, ModelShape model) {
  const Degrees degrees = c.resolve_degrees(world);
  check<UsageError>(degrees.tp == 1 || !model.of_a_rank.empty(),
                    "parallelism.tp {}: nothing says what a rank holds of this model "
                    "(ModelShape::of_a_rank): leave the key out",
                    degrees.tp);
  std::vector<ParameterShape> of_a_rank =
      model.of_a_rank.empty() ? model.parameters : model.of_a_rank;
  for (size_t i = 0; i < of_a_rank.size(); ++i)  // what is as large as the whole is the whole
    if (of_a_rank[i].numel() == model.parameters[i].numel())
      of_a_rank[i].savers = static_cast<int>(degrees.tp);
  if (degrees.pp == 1) {
    std::vector<ParameterShape> all = of_a_rank;
    return plan_states(c, world, std::move(model), std::move(all));
  }
  std::vector<double> costs;
  for (const ModuleShape& m : model.modules) costs.push_back(m.cost);
  const pipeline::PipelinePlan stages = pipeline_of(c, world, costs);
  const auto text_of = [&](const pipeline::StageBlocks& stage) {
    const std::string& first = model.modules[static_cast<size_t>(stage.begin)].name;
    const std::string& last = model.modules[static_cast<size_t>(stage.end - 1)].name;
    return stage.end - stage.begin == 1 ? first : first + " to " + last;
  };
  std::vector<MemoryPlan> ranks;
  for (int rank = 0; rank < degrees.pp; ++rank) {
    int blocks = 0;
    std::vector<pipeline::StageBlocks> own;
    std::vector<ParameterShape> parameters;
    std::vector<std::pair<size_t, std::vector<ParameterShape>>> by_stage;
    for (size_t s = 0; s < stages.stages.size(); ++s) {
      if (stages.schedule.rank_of_stage[s] != rank) continue;
      by_stage.push_back({s, {}});
      const auto begin = static_cast<int>(stages.stages[s].begin);
      for (ParameterShape p : of_a_rank) {
        if (p.unit <= stages.stages[s].begin || p.unit > stages.stages[s].end) continue;
        p.unit -= begin;  // units of a stage, or of a rank, are numbered from its first block
        by_stage.back().second.push_back(p);
        p.unit += blocks;
        parameters.push_back(std::move(p));
      }
      own.push_back(stages.stages[s]);
      blocks += static_cast<int>(own.back().end - own.back().begin);
    }
    MemoryPlan plan = plan_states(c, world, model, std::move(parameters));
    plan.question.whole_blocks = whole_blocks(stages, rank);
    plan.rank = plan.mean = rank_memory(plan.question);
    plan.pipeline = {{blocks_text(own, text_of), {}, {}}};
    for (auto& [s, of_stage] : by_stage) {
      auto& rows = plan.pipeline[0].stages;
      rows.push_back(stage_memory(plan.question, std::move(of_stage), stages, s, {}));
      rows.back().blocks = text_of(stages.stages[s]);
    }
    ranks.push_back(std::move(plan));
  }
  return fullest_of(std::move(ranks));
}

MemoryPlan plan_memory(const Config& c, int world) {
  const ModelGeometry geometry = geometry_of(c);
  c.resolve_degrees(world);  // what is wrong with them is said before what follows from it
  const std::vector<ModelPart> parts = fullest_parts(c, world);
  std::vector<MemoryPlan> ranks;
  for (const ModelPart& part : parts) {
    MemoryPlan plan =
        plan_states(c, world, model_shape(geometry), model_shape(geometry, part).parameters);
    MemoryQuestion& q = plan.question;
    ActivationQuestion a{geometry, plan.batches.micro, q.compute_bytes ? 4 : q.weight_bytes, 0,
                         part};
    a.model.context = positions_of_a_rank(c, geometry);
    if (parts.size() == 1) {
      add_activations(c, a, &plan);
    } else {
      const pipeline::PipelinePlan stages = pipeline_of(c, world);
      const int rank = static_cast<int>(ranks.size());
      q.whole_blocks = whole_blocks(stages, rank);
      const auto of_a_stage = add_activations(c, a, stages, rank, &plan);
      plan.pipeline = {{blocks_text(part.stages, text_of_gpt), {}, {}}};
      for (size_t s = 0; s < stages.stages.size(); ++s) {
        if (stages.schedule.rank_of_stage[s] != rank) continue;
        ModelPart alone = part;
        alone.stages = {stages.stages[s]};
        auto& rows = plan.pipeline[0].stages;
        rows.push_back(
            stage_memory(q, model_shape(geometry, alone).parameters, stages, s, of_a_stage));
        rows.back().blocks = text_of_gpt(stages.stages[s]);
      }
    }
    q.activation_kept = plan.activations.kept;
    q.activation_bytes = plan.activations.peak;
    plan.rank = rank_memory(q);
    ranks.push_back(std::move(plan));
  }
  return fullest_of(std::move(ranks));
}

std::string MemoryPlan::describe() const {
  const auto& q = question;
  std::string text = describe_degrees(*this) + describe_zero(*this);
  text += fmt::format("; {}; {} bytes a weight, {} a gradient", q.optimizer.type, q.weight_bytes,
                      q.gradient_bytes);
  if (q.master_bytes) text += ", float32 masters";
  if (q.share_weights) text += "; one copy of the weights a host";
  if (q.states_on_disk) text += "; states on disk";
  if (q.parameters_on_disk) text += "; parameters on disk";
  text += fmt::format("; {} {} at once", batches.micro, batches.micro == 1 ? "sample" : "samples");
  if (q.exchange_bytes > 0)
    text += fmt::format("; {} for compression or averaging", mebibytes(q.exchange_bytes));
  if (q.snapshot_bytes > 0) text += "; checkpoints while training goes on";
  if (recomputed > 0) text += fmt::format(", {} blocks recomputed", recomputed);
  return text;
}

std::string mebibytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const double b = static_cast<double>(bytes);
  if (b < kMiB) return fmt::format("{:.1f} KiB", b / 1024);
  return b < 1024 * kMiB ? fmt::format("{:.1f} MiB", b / kMiB)
                         : fmt::format("{:.2f} GiB", b / kMiB / 1024);
}

}  // namespace trireme
