// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_plan.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace memory_plan_test {

using namespace trireme;

namespace {

MemoryPlan plan(const std::vector<std::string>& sets, int ranks = 2) {
  return plan_memory(Config::from_text("c.json", R"({"train_micro_batch_size_per_gpu": 4})", sets),
                     ranks);
}

}  // namespace

TEST(planner_memory_plan, precision_decides_the_bytes) {
  const int64_t n = plan({}).model.numel();
  EXPECT_EQ(plan({}).rank.weights, 4 * n);
  EXPECT_EQ(plan({}).rank.optimizer, 8 * n);
  for (const char* half : {"bf16.enabled=true", "fp16.enabled=true"}) {
    EXPECT_EQ(plan({half}).rank.weights, 2 * n);
    EXPECT_EQ(plan({half}).rank.optimizer, 12 * n);
  }
  EXPECT_EQ(plan({"fp16.enabled=true", "fp16.emulate=true"}).rank.weights, 6 * n);
  EXPECT_EQ(plan({"optimizer.type=SGD"}).rank.optimizer, 0);
  EXPECT_EQ(plan({"optimizer.type=SGD", "optimizer.params.momentum=0.9"}).rank.optimizer, 4 * n);
  EXPECT_LT(plan({"bf16.enabled=true"}).rank.activations, plan({}).rank.activations);
}

TEST(planner_memory_plan, stages_and_their_keys_are_read) {
  for (int stage = 0; stage <= 3; ++stage) {
    const auto p = plan({"zero_optimization.stage=" + std::to_string(stage)}, 4);
    EXPECT_EQ(p.question.stage, stage);
    EXPECT_EQ(p.question.dp_shard, stage ? 4 : 1);
  }
  const auto two = plan({"zero_optimization.stage=2", "zero_optimization.share_weights=true",
                         "zero_optimization.reduce_bucket_size=5e6"});
  EXPECT_TRUE(two.question.share_weights);
  EXPECT_EQ(two.question.bucket_elements, 5'000'000);
  const auto hybrid = plan(
      {"zero_optimization.stage=3", "parallelism.dp_shard=2",
       "zero_optimization.offload_optimizer.device=nvme",
       "zero_optimization.offload_optimizer.nvme_path=/x", "zero_optimization.sub_group_size=1e5"},
      8);
  EXPECT_EQ(hybrid.question.dp_shard, 2);
  EXPECT_EQ(hybrid.rank.optimizer, 0);
  EXPECT_NE(hybrid.describe().find("ZeRO-3 over 2 ranks, 4 times"), std::string::npos);
  EXPECT_EQ(plan({"comm.bucket_mb=8"}).question.bucket_elements, 2 << 20);
}

TEST(planner_memory_plan, recomputation_is_planned_as_it_is_trained) {
  EXPECT_EQ(plan({"training.recompute_every=1"}).recomputed, 6);
  EXPECT_EQ(plan({"training.recompute_every=4"}).recomputed, 1);
  const auto all = plan({});
  const double some = static_cast<double>(all.activations.peak) / 1048576 / 2;
  const auto half = plan({"training.activation_memory_mb=" + std::to_string(some)});
  EXPECT_GT(half.recomputed, 0);
  EXPECT_LE(half.activations.peak, all.activations.peak / 2);
}

TEST(planner_memory_plan, impossible_ranks_are_refused) {
  EXPECT_THROW(plan({"zero_optimization.stage=3", "parallelism.dp_shard=3"}, 4), UsageError);
}

TEST(planner_memory_plan, bytes_are_written_for_people) {
  EXPECT_EQ(mebibytes(17), "17 B");
  EXPECT_EQ(mebibytes(1536), "1.5 KiB");
  EXPECT_EQ(mebibytes(48 << 20), "48.0 MiB");
  EXPECT_EQ(mebibytes(int64_t{5} << 30), "5.00 GiB");
}

TEST(planner_memory_plan, two_copies_of_what_a_rank_saves_are_counted) {
  const int64_t n = plan({}).model.numel();
  const auto bytes = [](std::vector<std::string> sets, int ranks = 2) {
    sets.push_back("checkpoint.async=true");
    if (sets.size() == 1 || sets[0].find("checkpoint.") != 0) sets.push_back("checkpoint.every=9");
    const RankMemory m = plan(sets, ranks).rank;
    EXPECT_EQ(m.total(),
              m.weights + m.gradients + m.optimizer + m.activations + m.buffers + m.snapshots);
    return m.snapshots;
  };
  EXPECT_EQ(plan({"checkpoint.every=9"}).rank.snapshots, 0);
  EXPECT_EQ(bytes({}), 2 * 12 * n / 2);
  EXPECT_EQ(bytes({}, 4), 2 * 12 * n / 4) << "ranks share in writing";
  for (const char* stage : {"1", "2", "3"})
    EXPECT_EQ(bytes({std::string("zero_optimization.stage=") + stage}, 4), 2 * 12 * n / 4);
  EXPECT_EQ(bytes({"bf16.enabled=true"}), 2 * 14 * n / 2) << "2 a weight, 12 of masters and AdamW";
  const std::vector<std::string> disk = {"zero_optimization.stage=3",
                                         "zero_optimization.offload_optimizer.device=nvme",
                                         "zero_optimization.offload_optimizer.nvme_path=/x"};
  EXPECT_EQ(bytes(disk), 2 * 4 * n / 2) << "what lies in a file is not copied";
  EXPECT_EQ(bytes({"averaging.type=local_sgd"}), 2 * (4 * n / 2 + 12 * n))
      << "the mean, and its own";
  EXPECT_EQ(bytes({"compression.type=int8"}), 2 * (12 * n / 2 + 4 * n)) << "what was not sent";
  EXPECT_EQ(bytes({"checkpoint.every=0"}), 0) << "nothing is saved while it trains";
  EXPECT_GT(bytes({"checkpoint.every_minutes=1"}), 0);
  EXPECT_GT(bytes({"checkpoint.auto=true"}), 0);
}

TEST(planner_memory_plan, compression_and_averaging_are_counted) {
  const auto plain = plan({});
  const double n = static_cast<double>(plain.model.numel());
  auto numbers = [&](const std::vector<std::string>& sets, int ranks = 2) {
    const auto p = plan(sets, ranks);
    EXPECT_EQ(p.rank.buffers - plan({}, ranks).rank.buffers, p.question.exchange_bytes);
    return static_cast<double>(p.question.exchange_bytes) / n;
  };
  EXPECT_EQ(numbers({}), 0);
  EXPECT_EQ(numbers({"compression.type=int8"}, 1), 4) << "what was not sent; nothing travels";
  EXPECT_NEAR(numbers({"compression.type=int8"}), 4 + 3.5 * (1 + 4.0 / 256) + 2, 0.01);
  EXPECT_NEAR(numbers({"compression.type=sign"}, 4), 4 + 5.0 / 8, 0.01);
  EXPECT_NEAR(numbers({"compression.type=topk"}), 4 + 3 * (0.125 + 2 * 0.1), 0.01);
  EXPECT_NEAR(numbers({"compression.type=topk", "compression.density=0.01"}), 4 + 3 * 0.04, 0.01);
  EXPECT_NEAR(numbers({"compression.type=sign", "compression.error_feedback=false"}), 3.0 / 8,
              0.01);
  EXPECT_LT(numbers({"compression.type=powersgd"}), 4.5);
  EXPECT_GT(numbers({"compression.type=auto"}), numbers({"compression.type=int8"}));
  EXPECT_EQ(numbers({"averaging.type=diloco"}), 12);
  EXPECT_NEAR(numbers({"averaging.type=diloco", "averaging.compression=sign"}), 16 + 3.0 / 8, 0.01);
  EXPECT_LE(numbers({"averaging.type=local_sgd"}), 4);
  EXPECT_NE(plan({"averaging.type=diloco"}).describe().find("for compression or averaging"),
            std::string::npos);
}

}  // namespace memory_plan_test
