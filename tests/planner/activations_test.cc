// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/activations.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/pipeline/schedule/generators.h"

namespace activations_test {

using namespace trireme;

namespace {

ActivationQuestion gpt(int64_t layers, int64_t width, int64_t micro, int64_t recomputed = 0) {
  ActivationQuestion q;
  q.model.layers = layers;
  q.model.width = width;
  q.micro_batch = micro;
  q.recomputed = recomputed;
  return q;
}

}  // namespace

TEST(planner_activations, grow_in_proportion_with_the_micro_batch) {
  for (const char* type : {"gpt", "mlp", "net", "convnet"}) {
    ActivationQuestion q;
    q.model.type = type;
    const ActivationMemory one = activation_memory(q);
    EXPECT_GT(one.kept, 0);
    EXPECT_GE(one.peak, one.kept);
    for (int64_t micro : {0, 2, 7, 64}) {
      q.micro_batch = micro;
      EXPECT_EQ(activation_memory(q).kept, micro * one.kept) << type;
      EXPECT_EQ(activation_memory(q).peak, micro * one.peak) << type;
    }
  }
}

TEST(planner_activations, fall_with_every_block_that_is_recomputed) {
  for (int64_t layers : {1, 2, 6, 12})
    for (int e : {2, 4}) {
      ActivationMemory before;
      for (int64_t recomputed = 0; recomputed <= layers; ++recomputed) {
        auto q = gpt(layers, 64, 3, recomputed);
        q.element_bytes = e;
        const ActivationMemory m = activation_memory(q);
        if (recomputed > 0) {
          EXPECT_LT(m.kept, before.kept);
        }
        if (recomputed > 1) {
          EXPECT_LT(m.peak, before.peak);
        }
        before = m;
      }
    }
}

TEST(planner_activations, what_is_between_divided_layers_is_divided_and_the_stream_is_not) {
  const auto of = [](int tp, bool sequence, int e, int64_t recomputed = 0) {
    auto q = gpt(4, 96, 2, recomputed);
    q.model.heads = 12;
    q.element_bytes = e;
    q.part.tp = tp;
    q.part.tp_rank = tp - 1;
    q.part.sequence_parallel = sequence;
    return activation_memory(q);
  };
  for (int e : {2, 4})
    for (int64_t recomputed : {0, 2, 4})
      for (int tp : {2, 3, 4}) {
        const ActivationMemory whole = of(1, false, e, recomputed),
                               part = of(tp, false, e, recomputed),
                               both = of(tp, true, e, recomputed);
        EXPECT_LT(part.kept, whole.kept);
        EXPECT_LT(both.kept, part.kept);
        EXPECT_GT(part.kept, whole.kept / tp);
        EXPECT_GE(both.kept, whole.kept / tp - whole.kept / 8) << "scores are kept in fewer bytes";
        EXPECT_GE(part.peak, part.kept);
        EXPECT_GE(both.peak, both.kept);
      }
  // By hand, per token: 4 w + 12 w / 2 numbers a block, and the statistics of 4 + 6.
  auto one = gpt(1, 96, 1), two = gpt(2, 96, 1);
  for (auto* q : {&one, &two}) q->model.heads = 12, q->part.tp = 2, q->part.tp_rank = 1;
  EXPECT_EQ(activation_memory(two).kept - activation_memory(one).kept,
            one.model.context * (10 * 96 * 4 + 10 * 4));
  for (auto* q : {&one, &two}) q->part.sequence_parallel = true;
  EXPECT_EQ(activation_memory(two).kept - activation_memory(one).kept,
            one.model.context * (8 * 96 * 4 + 8 * 4));
}

TEST(planner_activations, a_pipeline_keeps_the_micro_batches_under_way) {
  const auto kept = [](const char* name, int rank, int micro_batches) {
    const auto schedule =
        pipeline::generate_schedule(name, {.ranks = 2, .micro_batches = micro_batches});
    const ActivationMemory m = pipeline_activations(schedule, rank, {{100, 130}, {10, 15}});
    EXPECT_EQ(m.peak, m.kept + (rank == 0 ? 30 : 5)) << name;
    return m.kept;
  };
  EXPECT_EQ(kept("gpipe", 0, 6), 600);
  EXPECT_EQ(kept("gpipe", 1, 6), 60);
  EXPECT_EQ(kept("1f1b", 0, 6), 200);
  EXPECT_EQ(kept("1f1b", 1, 6), 10);
  EXPECT_EQ(kept("zb_h2", 0, 6), 300) << "2 p - 1, until their weight gradients";
  const auto schedule = pipeline::generate_schedule("zb_h2", {2, 6, 1});
  const auto noted = [&](int64_t of_a_stage) {
    return pipeline_activations(schedule, 0, {{100, 100, of_a_stage}, {10, 15}}).peak;
  };
  EXPECT_EQ(noted(0), 300);
  EXPECT_GT(noted(7), 300) << "what the first half notes for the second";
  EXPECT_LE(noted(7), 300 + 3 * 7);
}

TEST(planner_activations, stages_keep_together_what_the_network_keeps) {
  auto whole = gpt(6, 64, 2);
  const int64_t all = activation_memory(whole).kept;
  int64_t stages = 0;
  for (const auto& stage : pipeline::divide_blocks(6, 3)) {
    auto q = whole;
    q.part.stages = {stage};
    stages += activation_memory(q).kept;
  }
  EXPECT_EQ(stages, all + 2 * 2 * whole.model.context * 64 * 4) << "two inputs from stages before";
}

TEST(planner_activations, the_fewest_blocks_that_fit_are_recomputed) {
  const auto q = gpt(6, 64, 2);
  const int64_t all = activation_memory(q).peak;
  EXPECT_EQ(blocks_to_recompute(q, all), 0);
  EXPECT_GT(blocks_to_recompute(q, all - 1), 0);
  EXPECT_EQ(blocks_to_recompute(q, 1), 6);
  for (int64_t k = 2; k <= 6; ++k)
    EXPECT_EQ(blocks_to_recompute(q, activation_memory(gpt(6, 64, 2, k)).peak), k);
}

TEST(planner_activations, what_does_not_exist_is_refused) {
  EXPECT_THROW(activation_memory(gpt(2, 8, 1, 3)), UsageError);
  ActivationQuestion q;
  q.model.type = "resnet";
  EXPECT_THROW(activation_memory(q), UsageError);
}

}  // namespace activations_test
