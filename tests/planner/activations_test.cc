// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/activations.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

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
