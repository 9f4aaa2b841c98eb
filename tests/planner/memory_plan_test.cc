// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_plan.h"

#include <fmt/core.h>
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

TEST(planner_memory_plan, a_divided_model_is_planned_for_the_rank_with_the_most) {
  const auto whole = plan({}, 1), divided = plan({"parallelism.tp=2"}, 4);
  EXPECT_EQ(divided.model.numel(), whole.model.numel()) << "the table shows the network";
  EXPECT_EQ(divided.batches.dp, 2);
  EXPECT_EQ(divided.degrees.tp, 2);
  int64_t numel = 0;
  for (const auto& p : divided.question.parameters) numel += p.numel();
  EXPECT_EQ(divided.rank.weights, 4 * numel);
  EXPECT_EQ(divided.rank.optimizer, 8 * numel);
  EXPECT_LT(divided.rank.weights, whole.rank.weights * 6 / 10);
  EXPECT_GT(divided.rank.weights, whole.rank.weights / 2);
  EXPECT_LT(divided.rank.activations, whole.rank.activations * 7 / 10);
  const auto sequence = plan({"parallelism.tp=2", "parallelism.sequence_parallel=true"}, 4);
  EXPECT_LT(sequence.rank.activations, divided.rank.activations);
  EXPECT_EQ(sequence.rank.weights, divided.rank.weights);
  EXPECT_GT(divided.question.group_bytes, plan({}, 4).question.group_bytes)
      << "the world, and each axis";
  const auto zero = plan({"parallelism.tp=2", "zero_optimization.stage=3"}, 4);
  EXPECT_EQ(zero.question.dp_shard, 2);
  EXPECT_LT(zero.rank.optimizer, divided.rank.optimizer * 55 / 100);
}

TEST(planner_memory_plan, a_pipeline_is_planned_for_its_fullest_rank_and_on_average) {
  const std::vector<std::string> sets = {"parallelism.pp=2", "gradient_accumulation_steps=4"};
  const auto p = plan(sets, 2);
  EXPECT_EQ(p.degrees.pp, 2);
  EXPECT_LT(p.mean.total(), p.rank.total());
  EXPECT_GT(2 * p.mean.total(), p.rank.total());
  const auto gpipe = plan({sets[0], sets[1], "parallelism.schedule=gpipe"}, 2);
  EXPECT_GT(gpipe.rank.activations, p.rank.activations) << "all four micro-batches";
  const auto again = plan({sets[0], sets[1], "training.recompute_every=1"}, 2);
  EXPECT_EQ(again.recomputed, 3);
  EXPECT_LT(again.rank.activations, p.rank.activations);
  const auto one = plan({});
  EXPECT_EQ(one.mean.total(), one.rank.total());
}

TEST(planner_memory_plan, each_rank_of_a_pipeline_has_a_row) {
  const std::string micro = "gradient_accumulation_steps=4";
  const auto p = plan({"parallelism.pp=2", micro}, 2);
  ASSERT_EQ(p.pipeline.size(), 2u);
  EXPECT_EQ(p.pipeline[0].blocks, "embedding, 0-2");
  EXPECT_EQ(p.pipeline[1].blocks, "3-5, head");
  int64_t weights = 0, most = 0, sum = 0;
  for (const PipelineRank& rank : p.pipeline) {
    weights += rank.memory.weights;
    sum += rank.memory.total();
    most = std::max(most, rank.memory.total());
  }
  EXPECT_EQ(weights - plan({}, 1).rank.weights, 4 * 256 * 384) << "the tied head's";
  EXPECT_EQ(most, p.rank.total());
  EXPECT_NEAR(static_cast<double>(sum) / 2, static_cast<double>(p.mean.total()), 8);
  const auto v = plan({"parallelism.pp=2", micro, "parallelism.schedule=zb_v",
                       "parallelism.stages=[1,2,1,2]", "model.tied_head=false"},
                      2);
  EXPECT_EQ(v.pipeline[0].blocks, "embedding, 0; 4-5, head");
  EXPECT_EQ(v.pipeline[1].blocks, "1-2; 3");
  const std::string table = pipeline_table(v);
  EXPECT_EQ(table.substr(0, 16), "pp rank blocks  ");
  EXPECT_NE(table.find("\n0       embedding, 0; 4-5, head "), std::string::npos) << table;
  EXPECT_NE(table.find("\n1       1-2; 3 "), std::string::npos) << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_TRUE(plan({}, 2).pipeline.empty());
  EXPECT_EQ(pipeline_table(plan({}, 2)), "");
}

TEST(planner_memory_plan, virtual_stages_have_a_row_each_that_add_up_to_their_ranks) {
  for (const char* schedule : {"interleaved_1f1b", "zb_v", "dualpipe_v", "breadth_first"})
    for (const int zero : {0, 1, 3})
      for (const bool tied : {false, true}) {
        const std::string what = fmt::format("{}, ZeRO-{}, tied {}", schedule, zero, tied);
        const auto p =
            plan({"parallelism.pp=2", "gradient_accumulation_steps=4",
                  std::string("parallelism.schedule=") + schedule, "parallelism.stages=[1,2,1,2]",
                  fmt::format("zero_optimization.stage={}", zero),
                  fmt::format("model.tied_head={}", tied)},
                 4);
        std::vector<std::string> blocks(4);
        for (size_t r = 0; r < 2; ++r) {
          const PipelineRank& rank = p.pipeline[r];
          ASSERT_EQ(rank.stages.size(), 2u) << what;
          RankMemory sum;
          for (const StageMemory& s : rank.stages) {
            blocks.at(static_cast<size_t>(s.stage)) = s.blocks;
            sum.weights += s.memory.weights;
            sum.gradients += s.memory.gradients;
            sum.optimizer += s.memory.optimizer;
            sum.activations += s.memory.activations;
            EXPECT_GT(s.memory.activations, 0) << what;
          }
          // Shards are padded, those of a rank together.
          const double padding = zero ? 0.01 : 0;
          const auto near = [&](int64_t stages, int64_t all) {
            EXPECT_NEAR(static_cast<double>(stages) / static_cast<double>(all), 1, padding) << what;
          };
          near(sum.weights, rank.memory.weights);
          near(sum.gradients, rank.memory.gradients);
          near(sum.optimizer, rank.memory.optimizer);
          EXPECT_GE(sum.activations, rank.memory.activations) << what;
          EXPECT_LE(sum.activations, 2 * rank.memory.activations) << what;
        }
        EXPECT_EQ(blocks, (std::vector<std::string>{"embedding, 0", "1-2", "3", "4-5, head"}));
        const std::string table = stage_table(p);
        EXPECT_EQ(table.substr(0, 20), "stage pp rank blocks") << table;
        EXPECT_NE(table.find("\n0     0       embedding, 0 "), std::string::npos) << table;
        EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5);
      }
  EXPECT_EQ(stage_table(plan({"parallelism.pp=2", "gradient_accumulation_steps=4"}, 2)), "")
      << "the ranks' rows say it";
}

TEST(planner_memory_plan, the_pieces_of_a_program_are_the_blocks_of_its_pipeline) {
  ModelShape shape;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "p" + std::to_string(i);
    shape.modules.push_back({name, "Linear", 1000 * (i + 1), i == 3 ? 9.0 : 1.0});
    shape.parameters.push_back({name + ".weight", {1000 * (i + 1)}, i + 1});
  }
  const auto on = [&](const std::vector<std::string>& sets, int ranks) {
    return plan_memory(
        Config::from_text("c.json", R"({"train_micro_batch_size_per_gpu": 4})", sets), ranks,
        shape);
  };
  const auto p = on({"parallelism.pp=2", "gradient_accumulation_steps=2"}, 4);
  ASSERT_EQ(p.pipeline.size(), 2u);
  EXPECT_EQ(p.pipeline[0].blocks, "p0 to p2") << "the last piece costs more than all others";
  EXPECT_EQ(p.pipeline[1].blocks, "p3");
  EXPECT_EQ(p.pipeline[0].memory.weights, 4 * 6000);
  EXPECT_EQ(p.pipeline[1].memory.weights, 4 * 4000);
  EXPECT_EQ(p.rank.weights, 4 * 6000);
  EXPECT_EQ(p.model.numel(), 10000);
  const auto v =
      on({"parallelism.pp=2", "gradient_accumulation_steps=4", "parallelism.schedule=zb_v",
          "zero_optimization.stage=3", "model.tied_head=false"},
         4);
  EXPECT_EQ(v.pipeline[0].blocks, "p0; p3");
  EXPECT_EQ(v.pipeline[1].blocks, "p1; p2");
  ASSERT_EQ(v.pipeline[0].stages.size(), 2u);
  EXPECT_EQ(v.pipeline[0].stages[1].stage, 3);
  EXPECT_EQ(v.pipeline[0].stages[1].blocks, "p3");
  EXPECT_NEAR(static_cast<double>(v.pipeline[0].stages[1].memory.weights), 4 * 4000 / 2.0, 200);
  EXPECT_EQ(v.pipeline[0].stages[1].memory.activations, 0) << "not known";
  EXPECT_TRUE(on({}, 2).pipeline.empty());
  EXPECT_THROW(on({"parallelism.tp=2"}, 2), UsageError);
  EXPECT_THROW(on({"parallelism.pp=5", "gradient_accumulation_steps=5"}, 5), UsageError);
}

TEST(planner_memory_plan, the_degrees_are_written_for_people) {
  const auto begins = [](const std::vector<std::string>& sets, int ranks) {
    const std::string text = plan(sets, ranks).describe();
    return text.substr(0, text.find("; AdamW"));
  };
  const std::string tp = "parallelism.tp=2", pp = "parallelism.pp=2",
                    micro = "gradient_accumulation_steps=2";
  EXPECT_EQ(begins({}, 2), "2 ranks, no ZeRO");
  EXPECT_EQ(begins({tp}, 4), "2 ranks of data parallelism × 2 of tensor parallelism; no ZeRO");
  EXPECT_EQ(begins({tp, "zero_optimization.stage=1"}, 2),
            "1 rank of data parallelism × 2 of tensor parallelism; ZeRO-1 over 1 rank");
  EXPECT_EQ(begins({tp, "parallelism.sequence_parallel=true"}, 2),
            "1 rank of data parallelism × 2 of tensor and sequence parallelism; no ZeRO");
  EXPECT_EQ(begins({tp, pp, micro, "zero_optimization.stage=2", "parallelism.dp_shard=2"}, 16),
            "4 ranks of data parallelism × 2 of tensor parallelism × 2 of pipeline parallelism; "
            "ZeRO-2 over 2 ranks, 2 times");
}

TEST(planner_memory_plan, impossible_ranks_are_refused) {
  EXPECT_THROW(plan({"zero_optimization.stage=3", "parallelism.dp_shard=3"}, 4), UsageError);
  EXPECT_THROW(plan({"parallelism.tp=4"}, 4), UsageError) << "six heads";
  EXPECT_THROW(plan({"parallelism.tp=2"}, 3), UsageError);
  const Config c =
      Config::from_text("c.json", R"({"train_micro_batch_size_per_gpu": 4})", {"parallelism.tp=2"});
  EXPECT_THROW(plan_memory(c, 2, ModelShape()), UsageError) << "a model of a program's own";
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

TEST(planner_memory_plan, ranks_of_a_divided_model_save_each_parameter_once) {
  for (const char* tied : {"true", "false"}) {
    const std::vector<std::string> base = {"checkpoint.async=true", "checkpoint.every=9",
                                           std::string("model.tied_head=") + tied};
    const auto with = [&](std::vector<std::string> sets, int ranks) {
      sets.insert(sets.end(), base.begin(), base.end());
      return plan(sets, ranks);
    };
    const auto all = static_cast<double>(2 * 12 * plan(base).model.numel());  // two copies
    const auto of_a_rank = [](const MemoryPlan& p) {
      return static_cast<double>(p.rank.snapshots);
    };
    EXPECT_NEAR(of_a_rank(with({"parallelism.tp=2"}, 2)), all / 2, 1000);
    EXPECT_NEAR(of_a_rank(with({"parallelism.tp=2"}, 4)), all / 4, 1000);
    EXPECT_NEAR(of_a_rank(with({"parallelism.tp=2", "zero_optimization.stage=1"}, 4)), all / 4,
                1000);
    for (const char* schedule : {"1f1b", "zb_v"})
      for (const int tp : {1, 2}) {
        const MemoryPlan p =
            with({"parallelism.pp=2", fmt::format("parallelism.tp={}", tp),
                  "gradient_accumulation_steps=4", std::string("parallelism.schedule=") + schedule},
                 2 * tp);
        ASSERT_EQ(p.pipeline.size(), 2u);
        EXPECT_NEAR(
            static_cast<double>(p.pipeline[0].memory.snapshots + p.pipeline[1].memory.snapshots),
            all / tp, 1000)
            << schedule << ", tied " << tied << ", tp " << tp;
      }
  }
}

TEST(planner_memory_plan, ranks_of_a_divided_program_save_each_parameter_once) {
  ModelShape model;
  model.modules = {{"up", "Linear", 64 * 32 + 64}};
  model.parameters = {{"up.weight", {64, 32}, 1}, {"up.bias", {64}, 1}, {"up.scale", {32}, 1}};
  model.of_a_rank = {{"up.weight", {32, 32}, 1}, {"up.bias", {32}, 1}, {"up.scale", {32}, 1}};
  const Config config =
      Config::from_text("c.json", R"({"train_micro_batch_size_per_gpu": 4})",
                        {"parallelism.tp=2", "checkpoint.async=true", "checkpoint.every=9"});
  EXPECT_EQ(plan_memory(config, 2, model).rank.snapshots, 2 * 12 * (64 * 32 + 64 + 32) / 2);
  EXPECT_EQ(plan_memory(config, 4, model).rank.snapshots, 2 * 12 * (64 * 32 + 64 + 32) / 4);
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
