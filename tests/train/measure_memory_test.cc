// SPDX-License-Identifier: Apache-2.0
// What the planner predicts is what a run holds.
#include "trireme/train/setup/measure_memory.h"

#include <gtest/gtest.h>

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

/// Thread ranks; what rank 0 held.
MeasuredMemory measured(const Config& config, int ranks) {
  MeasuredMemory result;
  run_threads(ranks, [&](Group g) {
    const MeasuredMemory m = measure_memory(config, g);
    if (g.rank() == 0) result = m;
  });
  return result;
}

void agree(const std::string& what, const Config& config, int ranks, double tolerance = 0.1) {
  const MemoryPlan whole = plan_memory(config, ranks);
  RankMemory plan = whole.rank;
  plan.buffers -= whole.question.group_bytes;  // ranks are threads here
  const MeasuredMemory m = measured(config, ranks);
  auto near = [&](const char* name, int64_t planned, int64_t found, double relative) {
    EXPECT_NEAR(static_cast<double>(found) / kMiB, static_cast<double>(planned) / kMiB,
                relative * static_cast<double>(planned) / kMiB + 0.02)
        << what << ": " << name;
  };
  near("weights", plan.weights, m.weights, 0.001);
  near("gradients", plan.gradients, m.gradients, 0.01);
  near("optimizer", plan.optimizer, m.optimizer, 0.001);
  // A gradient in flight is among what a step holds for a moment.
  near("activations", plan.activations + plan.buffers, m.activations, tolerance);
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
