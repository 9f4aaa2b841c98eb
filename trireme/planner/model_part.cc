// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/model_part.h"

#include "trireme/base/check.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/layers/context_parallel/context_plan.h"
#include "trireme/pipeline/schedule/table_file.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme {
namespace {

std::string fault_of_positions(const Config& c) {
  const auto parallelism = c.section<ParallelismSection>();
  const auto model = c.section<ModelSection>();
  const int64_t cp = parallelism.cp;
  if (cp == 1) return "";
  std::string fault = fault_of_context(model.context, cp);
  if (fault.empty() && parallelism.cp_method == "all_to_all") {
    const int64_t heads = model.heads / parallelism.tp;  // of a tensor-parallel rank
    fault = fault_of_context_heads(heads, heads, cp);
  }
  if (fault.empty() && parallelism.tp > 1 && parallelism.sequence_parallel)
    fault = fault_of_split("a rank's part of the context", model.context / cp, parallelism.tp);
  return fault.empty()
             ? ""
             : fmt::format("parallelism.cp {} ({}): {}", cp, c.origin("parallelism.cp"), fault);
}

std::string fault_of_layers(const Config& c) {
  const auto parallelism = c.section<ParallelismSection>();
  const auto model = c.section<ModelSection>();
  const int64_t tp = parallelism.tp;
  if (tp == 1) return fault_of_positions(c);
  std::string fault = fault_of_heads(model.heads, model.heads, tp);
  if (fault.empty()) fault = fault_of_split("a vocabulary", model.vocab, tp);
  if (fault.empty()) fault = fault_of_split("a width", model.width, tp);
  if (fault.empty() && parallelism.sequence_parallel)
    fault = fault_of_split("a context", model.context, tp);
  return fault.empty()
             ? fault_of_positions(c)
             : fmt::format("parallelism.tp {} ({}): {}", tp, c.origin("parallelism.tp"), fault);
}

std::optional<pipeline::Schedule> table_of(const Config& c) {
  const auto file = c.section<ParallelismSection>().schedule_file;
  if (!file) return std::nullopt;
  return pipeline::proven_table(
      *file, fmt::format("parallelism.schedule_file ({})", c.origin("parallelism.schedule_file")));
}

std::vector<double> equal_costs(const Config& c) {
  return std::vector<double>(static_cast<size_t>(c.section<ModelSection>().layers), 1);
}

pipeline::PipelinePlan plan_of(const Config& c, int world, const std::vector<double>& costs,
                               std::optional<pipeline::Schedule> table) {
  const auto parallelism = c.section<ParallelismSection>();
  pipeline::PipelinePlan plan = pipeline::plan_pipeline(
      {.schedule = parallelism.schedule,
       .ranks = static_cast<int>(parallelism.pp),
       .stages_per_rank = static_cast<int>(parallelism.virtual_stages),
       .micro_batches = static_cast<int>(c.resolve_batches(world).accumulation),
       .blocks = static_cast<int64_t>(costs.size()),
       .counts = parallelism.stages.value_or(std::vector<int64_t>()),
       .costs = costs,
       .table = std::move(table),
       .same_bits = c.section<TrainingSection>().reproducible});
  if (parallelism.whole_stages > 0)
    plan.schedule =
        pipeline::place_units(plan.schedule, static_cast<int>(parallelism.whole_stages));
  return plan;
}

}  // namespace

pipeline::PipelinePlan pipeline_of(const Config& c, int world) {
  return pipeline_of(c, world, equal_costs(c));
}

pipeline::PipelinePlan pipeline_of(const Config& c, int world, const std::vector<double>& costs) {
  return plan_of(c, world, costs, table_of(c));
}

std::string fault_of_division(const Config& c, int world) {
  const std::string fault = fault_of_layers(c);
  const auto parallelism = c.section<ParallelismSection>();
  if (!fault.empty() || parallelism.pp == 1) return fault;
  std::optional<pipeline::Schedule> table;
  try {
    table = table_of(c);
  } catch (const UsageError& e) {
    return e.what();
  }
  try {
    plan_of(c, world, equal_costs(c), std::move(table));
  } catch (const UsageError& e) {
    return fmt::format(
        "parallelism.pp {} ({}), and gradient_accumulation_steps are its micro-batches: {}",
        parallelism.pp, c.origin("parallelism.pp"), e.what());
  }
  return "";
}

std::vector<ModelPart> fullest_parts(const Config& c, int world) {
  const auto parallelism = c.section<ParallelismSection>();
  const std::string fault = fault_of_division(c, world);
  check<UsageError>(fault.empty(), "{}", fault);
  ModelPart part;
  part.tp = static_cast<int>(parallelism.tp);
  part.tp_rank = part.tp - 1;
  part.sequence_parallel = part.tp > 1 && parallelism.sequence_parallel;
  if (parallelism.pp == 1) return {part};
  const pipeline::PipelinePlan plan = pipeline_of(c, world);
  std::vector<ModelPart> parts(static_cast<size_t>(parallelism.pp), part);
  for (size_t s = 0; s < plan.stages.size(); ++s)
    parts[static_cast<size_t>(plan.schedule.rank_of_stage[s])].stages.push_back(plan.stages[s]);
  return parts;
}

}  // namespace trireme
