// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/program_stages.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/tensor/module_device.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/model_axes/schedule_table.h"
#include "trireme/train/model_axes/stage_costs.h"
#include "trireme/train/program/chain_program.h"
#include "trireme/train/program/term_total.h"
#include "trireme/train/program/updates.h"

namespace trireme {
namespace {

pipeline::PipelinePlan plan_of(const Config& c, const std::vector<Piece>& pieces, int world,
                               std::vector<double> costs, std::optional<pipeline::Schedule> table) {
  const auto parallelism = c.section<ParallelismSection>();
  if (costs.empty())
    for (const Piece& p : pieces) costs.push_back(p.cost);
  pipeline::PipelinePlan plan = pipeline::plan_pipeline(
      {.schedule = parallelism.schedule,
       .ranks = static_cast<int>(parallelism.pp),
       .stages_per_rank = static_cast<int>(parallelism.virtual_stages),
       .micro_batches = static_cast<int>(c.resolve_batches(world).accumulation),
       .blocks = static_cast<int64_t>(pieces.size()),
       .counts = parallelism.stages.value_or(std::vector<int64_t>()),
       .costs = std::move(costs),
       .table = std::move(table),
       .same_bits = c.section<TrainingSection>().reproducible});
  place_zero(c, plan.schedule);
  return plan;
}

LossTerms terms_of(ChainProgram& program, const std::vector<at::Tensor>& outputs,
                   const MicroBatch& micro, std::vector<at::Tensor>* values) {
  LossTerms terms = program.loss_of(outputs, micro);
  for (const auto& [name, value] : terms) values->push_back(value);
  return terms;
}

}  // namespace

std::string fault_of_axes(Program& program, const Config& c, const std::vector<Piece>& pieces,
                          int world) {
  const auto parallelism = c.section<ParallelismSection>();
  if (parallelism.pp == 1) return "";
  const std::string key =
      fmt::format("parallelism.pp {} ({})", parallelism.pp, c.origin("parallelism.pp"));
  if (!dynamic_cast<ChainProgram*>(&program))
    return key +
           ": nothing says that the pieces of this program follow each other. Derive it from "
           "trireme::ChainProgram, or leave the key out";
  const std::vector<Update> updates = updates_of(program, c, pieces);
  if (updates.size() != 1 || updates[0].pieces.size() != pieces.size())
    return key +
           ": a pipeline is for a program with one update of all pieces, and Program::updates() "
           "returned others: leave the key out";
  std::optional<pipeline::Schedule> table;
  try {
    table = schedule_table(c);
  } catch (const UsageError& e) {
    return e.what();
  }
  try {
    plan_of(c, pieces, world, {}, std::move(table));
  } catch (const UsageError& e) {
    return fmt::format(
        "{}, where the pieces of the program are the blocks and gradient_accumulation_steps are "
        "the micro-batches: {}",
        key, e.what());
  }
  return "";
}

ProgramStages::ProgramStages(Trainer::Impl& trainer, std::vector<Piece> pieces)
    : trainer_(trainer),
      program_(dynamic_cast<ChainProgram&>(trainer.program)),
      pieces_(std::move(pieces)) {}

void ProgramStages::divide(const DeviceMesh& mesh, const PrecisionPlan& precision,
                           at::Device device, const DataSource* data) {
  const Config& c = trainer_.config;
  auto table = schedule_table(c, mesh.world());
  if (c.section<ParallelismSection>().partition_method == "measured")
    seconds_ = measured(mesh, precision, device, data);
  rank_ = mesh.coordinate("pp");
  plan_ = plan_of(c, pieces_, mesh.size(), seconds_, std::move(table));
}

std::vector<const Piece*> ProgramStages::here() const {
  std::vector<const Piece*> list;
  for (const auto& stage : stages_here(plan(), rank_))
    for (int64_t i = stage.begin; i < stage.end; ++i)
      list.push_back(&pieces_[static_cast<size_t>(i)]);
  return list;
}

ModelStages ProgramStages::model_stages() const {
  const auto here = stages_here(plan(), rank_);
  std::vector<std::pair<std::string, int>> prefixes;
  for (size_t s = 0; s < here.size(); ++s)
    for (int64_t i = here[s].begin; i < here[s].end; ++i)
      prefixes.emplace_back(pieces_[static_cast<size_t>(i)].path + ".", static_cast<int>(s));
  return {static_cast<int>(here.size()), [prefixes](const std::string& parameter) {
            for (const auto& [prefix, stage] : prefixes)
              if (parameter.starts_with(prefix)) return stage;
            fail<UsageError>("parameter '{}' is of no piece", parameter);
          }};
}

void ProgramStages::check_trained(const torch::nn::Module& model) const {
  const auto parameters = model.parameters();
  if (std::any_of(parameters.begin(), parameters.end(),
                  [](const at::Tensor& p) { return p.requires_grad(); }))
    return;
  std::vector<std::string> paths;
  for (const Piece* piece : here()) paths.push_back(piece->path);
  fail<UsageError>(
      "rank {} of the pipeline has nothing to train but {}, without parameters: give it other "
      "pieces (parallelism.stages, Piece::cost), or take fewer ranks",
      rank_, fmt::join(paths, ", "));
}

StageFunctions ProgramStages::functions(Trainer::Impl::Part& part) const {
  return {[this, &part](Run& run, int stage, size_t, const StageFunctions::Tensors& inputs,
                        const MicroBatch& micro) {
            const pipeline::StageBlocks& pieces = plan().stages.at(static_cast<size_t>(stage));
            return part.model->within(*run.compute, [&] {
              auto passed = stage == 0 ? program_.inputs(micro) : inputs;
              for (int64_t i = pieces.begin; i < pieces.end; ++i)
                passed = program_.run_piece(trainer_.net, pieces_[static_cast<size_t>(i)].path,
                                            passed, micro);
              return passed;
            });
          },
          [this, &part](Run&, const StageFunctions::Tensors& outputs, const MicroBatch& micro) {
            std::vector<at::Tensor> values;
            const LossTerms terms = terms_of(program_, outputs, micro, &values);
            return total_of_terms(terms, values, part.factors, part.sums);
          }};
}

std::string ProgramStages::describe() const {
  return seconds_.empty() ? "" : describe_stages(plan().stages, seconds_, "pieces");
}

// Makes one piece after another, so that a model that no rank can hold can be measured.
std::vector<double> ProgramStages::measured(const DeviceMesh& mesh, const PrecisionPlan& precision,
                                            at::Device device, const DataSource* data) {
  const Config& c = trainer_.config;
  check<UsageError>(data != nullptr,
                    "{}: parallelism.partition_method measures the pieces on training data: "
                    "return it from Program::data(), or use uniform",
                    c.origin("parallelism.partition_method"));
  const auto seed = static_cast<uint64_t>(c.section<TrainingSection>().seed);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < c.resolve_batches(mesh.size()).micro; ++i)
    samples.push_back(i % data->size());
  const MicroBatch micro = on_device(data->get(samples), device);
  const RandomScope random({seed, 0, micro.samples});
  std::vector<at::Tensor> passed = program_.inputs(micro);
  std::vector<double> seconds;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    ProgramModel model({&pieces_[i]}, precision, device.type(), UnitMade(), seed);
    move_module(model, device);
    if (!precision.emulated()) stored_weights(model, precision);
    Network::Impl network{{{pieces_[i].path, {&model, 0, nullptr}}}, {pieces_[i].path}, true};
    Network net(network);
    const auto inputs = i == 0 ? passed : as_stage_inputs(passed);
    seconds.push_back(time_of(
        [&] {
          passed = program_.run_piece(net, pieces_[i].path, inputs, micro);
          std::vector<at::Tensor> ends = passed;
          if (i + 1 == pieces_.size()) {
            ends.clear();
            terms_of(program_, passed, micro, &ends);
          }
          return ends;
        },
        device));
  }
  return mean_over_ranks(seconds, mesh.world());
}

}  // namespace trireme
