// SPDX-License-Identifier: Apache-2.0
// What the planner predicts is what a run holds.
#include "trireme/train/setup/measure_memory.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/train/small_runs.h"
#include "trireme/planner/memory_plan.h"

namespace measure_memory_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kMiB = 1048576;

Config gpt(const Sets& sets) {
  Sets all = {"data.type=dummy",   "model.layers=4",   "model.width=128",
              "model.heads=4",     "model.context=64", "train_micro_batch_size_per_gpu=8",
              "training.steps=100"};
  all.insert(all.end(), sets.begin(), sets.end());
  return Config::from_text("gpt.json", "{}", all);
}

/// Thread ranks; what each of them held.
std::vector<MeasuredMemory> measured_on_all(const Config& config, int ranks) {
  std::vector<MeasuredMemory> results(static_cast<size_t>(ranks));
  run_threads(ranks,
              [&](Group g) { results[static_cast<size_t>(g.rank())] = measure_memory(config, g); });
  return results;
}

MeasuredMemory measured(const Config& config, int ranks) {
  return measured_on_all(config, ranks)[0];
}

/// `padding`: of shards, which a small model has much of. The rest of a step is within
/// `tolerance` of the plan, or above `least` of it where the plan is a bound.
struct Near {
  double tolerance = 0.1, padding = 0, least = 1 - tolerance;
};

void expect_near(const std::string& what, RankMemory plan, int64_t group_bytes,
                 const MeasuredMemory& m, const Near& is) {
  plan.buffers -= group_bytes;  // ranks are threads here
  auto near = [&](const char* name, int64_t planned, int64_t found, double relative) {
    EXPECT_NEAR(static_cast<double>(found) / kMiB, static_cast<double>(planned) / kMiB,
                relative * static_cast<double>(planned) / kMiB + 0.02)
        << what << ": " << name;
  };
  near("weights", plan.weights, m.weights, 0.001 + is.padding);
  near("gradients", plan.gradients, m.gradients, 0.01 + is.padding);
  near("optimizer", plan.optimizer, m.optimizer, 0.001 + is.padding);
  // A gradient in flight is among what a step holds for a moment.
  const auto planned = static_cast<double>(plan.activations + plan.buffers) / kMiB;
  const double found = static_cast<double>(m.activations) / kMiB;
  EXPECT_LE(found, (1 + is.tolerance) * planned + 0.02) << what << ": activations";
  EXPECT_GE(found, is.least * planned - 0.02) << what << ": activations";
}

void agree(const std::string& what, const Config& config, int ranks, double tolerance = 0.1) {
  const MemoryPlan plan = plan_memory(config, ranks);
  expect_near(what, plan.rank, plan.question.group_bytes, measured(config, ranks), {tolerance});
}

}  // namespace

TEST(train_measure_memory, a_gpt_holds_what_was_predicted) {
  agree("float32", gpt({}), 2);
  agree("one block recomputed", gpt({"training.recompute_every=4"}), 1);
  agree("all blocks recomputed", gpt({"training.recompute_every=1"}), 1);
  agree("untied, many tokens", gpt({"model.tied_head=false", "model.vocab=4096"}), 1);
  agree("dropout", gpt({"model.dropout=0.1"}), 1);
}

TEST(train_measure_memory, parts_of_layers_hold_what_was_predicted) {
  for (const char* sequence : {"false", "true"})
    for (const char* recompute : {"0", "1"}) {
      const std::vector<std::string> sets = {
          "parallelism.tp=2", std::string("parallelism.sequence_parallel=") + sequence,
          std::string("training.recompute_every=") + recompute};
      agree("sequence_parallel " + std::string(sequence) + ", every " + recompute, gpt(sets), 2);
    }
  agree("beside dp", gpt({"parallelism.tp=2"}), 4);
  agree("uneven", gpt({"parallelism.tp=3", "model.width=132", "model.heads=6", "model.vocab=301"}),
        3);
  agree("bf16", gpt({"parallelism.tp=2", "bf16.enabled=true"}), 2, 0.2);
}

TEST(train_measure_memory, parts_of_rows_hold_what_was_predicted) {
  for (const char* method : {"ring", "all_gather", "all_to_all"})
    agree(method, gpt({"parallelism.cp=2", std::string("parallelism.cp_method=") + method}), 2);
  agree("beside tp", gpt({"parallelism.cp=2", "parallelism.tp=2"}), 4);
}

TEST(train_measure_memory, each_rank_of_a_pipeline_holds_what_was_predicted) {
  for (const Sets& sets :
       std::vector<Sets>{{},
                         {"zero_optimization.stage=1"},
                         {"zero_optimization.stage=2"},
                         {"zero_optimization.stage=3"},
                         {"parallelism.schedule=gpipe"},
                         {"parallelism.schedule=interleaved_1f1b", "zero_optimization.stage=3"},
                         {"parallelism.schedule=interleaved_1f1b"},
                         {"parallelism.schedule=zb_v"},
                         {"parallelism.schedule=dualpipe_v", "zero_optimization.stage=1"},
                         {"parallelism.stages=[1,3]"}}) {
    Sets all = {"parallelism.pp=2", "gradient_accumulation_steps=4",
                "train_micro_batch_size_per_gpu=4", "model.tied_head=false"};
    all.insert(all.end(), sets.begin(), sets.end());
    const Config config = gpt(all);
    const MemoryPlan plan = plan_memory(config, 4);
    const auto found = measured_on_all(config, 4);
    // With ZeRO the plan adds up what buffers and activations take at most, at different moments.
    const Near near = plan.question.stage == 0 ? Near{0.15} : Near{0.15, 0.06, 0.5};
    for (size_t rank = 0; rank < 4; ++rank)  // those of a stage are neighbours
      expect_near(fmt::format("{} on rank {}", fmt::join(sets, " "), rank),
                  plan.pipeline.at(rank / 2).memory, plan.question.group_bytes, found[rank], near);
  }
}

TEST(train_measure_memory, half_precision_holds_what_was_predicted) {
  agree("bf16", gpt({"bf16.enabled=true"}), 2, 0.2);
  agree("bf16 of another width", gpt({"bf16.enabled=true", "model.width=64"}), 1, 0.2);
}

TEST(train_measure_memory, every_optimizer_holds_what_was_predicted) {
  for (const char* type :
       {"SGD", "Adam", "Lamb", "Lars", "Lion", "RMSprop", "Adagrad", "Adafactor"}) {
    const Config config = gpt({std::string("optimizer.type=") + type, "model.layers=1"});
    EXPECT_NEAR(static_cast<double>(measured(config, 1).optimizer),
                static_cast<double>(plan_memory(config, 1).rank.optimizer), 64)
        << type;
  }
}

TEST(train_measure_memory, other_networks_hold_what_was_predicted) {
  // Two micro-batches: with one, a Linear writes its gradient into the bucket and none is in
  // flight.
  agree("mlp",
        digits("mlp",
               {"train_batch_size=128", "gradient_accumulation_steps=2", "model.hidden=[512,256]"}),
        1, 0.2);
  agree("net", digits("net"), 1, 0.2);
  agree("convnet", digits("convnet"), 1, 0.2);
}

TEST(train_measure_memory, what_stays_beside_a_run_is_its_data) {
  const Config config = gpt({});
  const MeasuredMemory one = measured(config, 1), two = measured(config, 2);
  EXPECT_EQ(one.weights + one.gradients + one.optimizer,
            two.weights + two.gradients + two.optimizer);
  EXPECT_EQ(one.buffers, two.buffers);
  EXPECT_LT(one.buffers, 5 << 20);
}

}  // namespace measure_memory_test
