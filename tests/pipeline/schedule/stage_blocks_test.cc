// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/stage_blocks.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"
#include "trireme/pipeline/schedule/csv.h"

namespace trireme::pipeline::testing::stage_blocks_test {
namespace {

using trireme::testing::has;
using trireme::testing::refusal;
using Counts = std::vector<int64_t>;
using Costs = std::vector<double>;

/// All ways to divide so many blocks into so many stages, those with more in front first.
std::vector<Counts> all_divisions(int64_t blocks, int stages) {
  if (stages == 1) return {{blocks}};
  std::vector<Counts> all;
  for (int64_t first = blocks - stages + 1; first >= 1; --first)
    for (Counts rest : all_divisions(blocks - first, stages - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  return all;
}

std::pair<double, double> slowest_and_squares(const Costs& costs, const Counts& counts) {
  std::pair<double, double> result{0, 0};
  size_t at = 0;
  for (const int64_t count : counts) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += costs[at++];
    result.first = std::max(result.first, sum);
    result.second += sum * sum;
  }
  return result;
}

TEST(pipeline_schedule_stage_blocks, equal_costs_give_equally_many_blocks) {
  for (int64_t blocks = 1; blocks <= 40; ++blocks)
    for (int stages = 1; stages <= blocks; ++stages)
      for (const double cost : {0.0, 1.0, 3e-4}) {
        Counts even;
        for (const StageBlocks& s : divide_blocks(blocks, stages)) even.push_back(s.end - s.begin);
        EXPECT_EQ(counts_by_cost(Costs(static_cast<size_t>(blocks), cost), stages), even)
            << blocks << " " << stages << " " << cost;
      }
}

TEST(pipeline_schedule_stage_blocks, no_division_is_better_than_the_one_by_cost) {
  std::mt19937 random(7);
  for (int64_t blocks = 1; blocks <= 9; ++blocks)
    for (int stages = 1; stages <= blocks; ++stages)
      for (int trial = 0; trial < 8; ++trial) {
        Costs costs;
        for (int64_t b = 0; b < blocks; ++b)
          costs.push_back(static_cast<double>(random() % (trial < 4 ? 4 : 64)));
        const Counts found = counts_by_cost(costs, stages);
        ASSERT_EQ(found.size(), static_cast<size_t>(stages));
        EXPECT_EQ(std::accumulate(found.begin(), found.end(), int64_t{0}), blocks);
        Counts best;
        for (const Counts& other : all_divisions(blocks, stages))
          if (best.empty() || slowest_and_squares(costs, other) < slowest_and_squares(costs, best))
            best = other;
        EXPECT_EQ(slowest_and_squares(costs, found), slowest_and_squares(costs, best))
            << blocks << " blocks, " << stages << " stages";
      }
}

TEST(pipeline_schedule_stage_blocks, an_expensive_end_has_few_neighbours) {
  EXPECT_EQ(counts_by_cost({1, 1, 1, 1, 1, 1, 1, 6}, 2), (Counts{7, 1}));
  EXPECT_EQ(counts_by_cost({5, 1, 1, 1, 1, 1, 1, 1}, 3), (Counts{1, 4, 3}));
  EXPECT_EQ(counts_by_cost({1e-9, 1e9, 1e-9}, 3), (Counts{1, 1, 1}));
  EXPECT_EQ(counts_by_cost({0, 0, 1, 0, 0}, 2), (Counts{4, 1})) << "the first have more";
}

TEST(pipeline_schedule_stage_blocks, a_thousand_layers_are_divided_at_once) {
  Costs costs;
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) costs.push_back(1 + static_cast<double>(random() % 100));
  const Counts counts = counts_by_cost(costs, 64);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 1000);
  EXPECT_LT(slowest_and_squares(costs, counts).first,
            1.2 * std::accumulate(costs.begin(), costs.end(), 0.0) / 64);
}

TEST(pipeline_schedule_stage_blocks, a_plan_takes_counts_before_costs) {
  PipelineShape shape{.ranks = 2, .micro_batches = 2, .blocks = 4};
  const auto counts = [&] {
    Counts all;
    for (const StageBlocks& s : plan_pipeline(shape).stages) all.push_back(s.end - s.begin);
    return all;
  };
  EXPECT_EQ(counts(), (Counts{2, 2}));
  shape.costs = {1, 1, 1, 9};
  EXPECT_EQ(counts(), (Counts{3, 1}));
  shape.counts = {1, 3};
  EXPECT_EQ(counts(), (Counts{1, 3}));
}

TEST(pipeline_schedule_stage_blocks, a_table_takes_the_place_of_a_schedule) {
  // Three stages: the first and the last are on rank 1.
  const Schedule table = read_table("1F0,1F1,1B0,1B1\n0F0,0F1,2F0,2B0,2F1,2B1,0B0,0B1", "t.csv");
  const PipelinePlan plan = plan_pipeline(
      {.schedule = "zb_v", .ranks = 2, .micro_batches = 2, .blocks = 7, .table = table});
  EXPECT_EQ(plan.schedule.actions, table.actions);
  EXPECT_EQ(plan.schedule.rank_of_stage, (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(plan.stages, divide_blocks(7, 3));
}

TEST(pipeline_schedule_stage_blocks, a_table_for_other_ranks_or_micro_batches_is_refused) {
  const auto refused = [](const std::string& table, int ranks, int micro_batches) {
    return refusal([&] {
      plan_pipeline({.ranks = ranks,
                     .micro_batches = micro_batches,
                     .blocks = 8,
                     .table = read_table(table, "t.csv")});
    });
  };
  const std::string table = "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1";
  EXPECT_EQ(refused(table, 2, 2), "");
  EXPECT_EQ(refused(table, 4, 2), "t.csv is for 2 ranks, one a line, and the pipeline has 4");
  EXPECT_EQ(refused(table, 2, 4), "t.csv is for 2 micro-batches, and a step has 4");
  EXPECT_EQ(refused(table + "\n,,", 3, 2), "t.csv: rank 2 has no stage");
  EXPECT_TRUE(
      has(refusal([&] {
            plan_pipeline(
                {.ranks = 2, .micro_batches = 2, .blocks = 1, .table = read_table(table, "t.csv")});
          }),
          "2 stages, and the model has 1 blocks"));
}

TEST(pipeline_schedule_stage_blocks, the_bits_of_one_process_want_micro_batches_in_order) {
  const auto refused = [](const Schedule& table, bool same_bits) {
    return refusal([&] {
      plan_pipeline({.ranks = table.ranks(),
                     .micro_batches = table.micro_batches,
                     .blocks = table.stages(),
                     .table = table,
                     .same_bits = same_bits});
    });
  };
  for_all_schedules([&](const Schedule& s, const ScheduleSize& size) {
    ASSERT_EQ(refused(s, true), "") << described(s, size);
  });
  const Schedule gradients = read_table("0F0,0F1,0F2,0I2,0I0,0I1,0W1,0W0,0W2", "t.csv");
  EXPECT_EQ(refused(gradients, false), "");
  EXPECT_EQ(refused(gradients, true),
            "t.csv: the weight gradients of stage 0 come neither in the order of the micro-batches "
            "nor in the reverse of it, and training.reproducible wants the bits of one process, "
            "which depend on that order");
  const Schedule losses = read_table("0F1,0F0,0B0,0B1", "t.csv");
  EXPECT_EQ(refused(losses, false), "");
  EXPECT_TRUE(has(refused(losses, true), "t.csv: the forwards of the last stage do not come in"));
}

TEST(pipeline_schedule_stage_blocks, what_cannot_be_divided_is_one_sentence) {
  EXPECT_TRUE(has(refusal([] { counts_by_cost({1, 1}, 3); }), "3 stages, and the model has 2"));
  EXPECT_TRUE(has(refusal([] { counts_by_cost({1, -1}, 2); }), "block 1 costs -1"));
  EXPECT_TRUE(has(refusal([] {
                    counts_by_cost({std::numeric_limits<double>::quiet_NaN(), 1}, 2);
                  }),
                  "block 0 costs nan"));
  EXPECT_TRUE(has(refusal([] { counts_by_cost({1e308, 1e308}, 2); }), "no finite sum"));
  EXPECT_TRUE(has(refusal([] {
                    plan_pipeline({.ranks = 2, .micro_batches = 2, .blocks = 4, .costs = {1, 2}});
                  }),
                  "the costs of 2 blocks are given, and the model has 4"));
}

}  // namespace
}  // namespace trireme::pipeline::testing::stage_blocks_test
