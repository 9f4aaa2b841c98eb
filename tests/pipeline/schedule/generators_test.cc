// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/generators.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/pipeline/schedule/csv.h"

namespace trireme::pipeline::testing::generators_test {
namespace {

using trireme::testing::refusal;

const std::string kFixtures = trireme::testing::source_path("/tests/pipeline/schedule/fixtures/");

TEST(pipeline_schedule_generators, give_the_order_of_pytorch_for_231_sizes) {
  std::istringstream lines(read_file(kFixtures + "torch_2.14.1.tables"));
  struct Table {
    std::string title, text;
  };
  std::vector<Table> tables;
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#')
      tables.push_back({line, ""});
    else
      tables.back().text += line + "\n";
  }
  std::map<std::string, int> seen;
  for (const Table& table : tables) {
    std::istringstream words(table.title);
    std::string hash, name;
    ScheduleSize size;
    if (!(words >> hash >> name >> size.ranks >> size.micro_batches >> size.stages_per_rank))
      continue;  // where the file comes from
    EXPECT_EQ(write_table(generate_schedule(name, size)), table.text) << table.title;
    ++seen[name];
  }
  const std::map<std::string, int> expected{
      {"1f1b", 22},  {"breadth_first", 56},    {"dualpipe_v", 16},
      {"gpipe", 28}, {"interleaved_1f1b", 54}, {"zb_h1", 27},
      {"zb_v", 28}};
  EXPECT_EQ(seen, expected);
}

// The table that PyTorch's own tests read (test/distributed/pipelining/artifacts).
TEST(pipeline_schedule_generators, dualpipe_v_is_the_table_of_pytorchs_tests) {
  EXPECT_EQ(write_table(generate_schedule("dualpipe_v", {4, 10, 2})),
            read_file(kFixtures + "dualpipev_4rank_10mb.csv"));
}

// Drawn from figure 3 (below) of the Zero Bubble paper: 2(p−r)−1 forwards first, no rank idle.
TEST(pipeline_schedule_generators, zb_h2_begins_with_the_forwards_of_the_papers_figure) {
  const Schedule s = generate_schedule("zb_h2", {4, 8, 1});
  const std::string table = write_table(s);
  EXPECT_EQ(table.substr(0, table.find('\n')),
            "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0I0,0W0,0F7,0I1,0W1,0I2,0W2,0I3,0W3,0I4,0W4,0I5,0W5,"
            "0I6,0W6,0I7,0W7");
  const size_t last = table.rfind('\n', table.size() - 2) + 1;
  EXPECT_EQ(table.substr(last),
            "3F0,3I0,3W0,3F1,3I1,3F2,3I2,3F3,3I3,3F4,3I4,3F5,3I5,3F6,3I6,3F7,3I7,3W1,3W2,3W3,"
            "3W4,3W5,3W6,3W7\n");
}

TEST(pipeline_schedule_generators, one_rank_computes_everything_by_itself) {
  EXPECT_EQ(write_table(generate_schedule("gpipe", {1, 2, 1})), "0F0,0F1,0B0,0B1\n");
  EXPECT_EQ(write_table(generate_schedule("1f1b", {1, 2, 1})), "0F0,0B0,0F1,0B1\n");
}

TEST(pipeline_schedule_generators, one_micro_batch_is_naive_model_parallelism) {
  EXPECT_EQ(write_table(generate_schedule("1f1b", {3, 1, 1})), "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
}

TEST(pipeline_schedule_generators, say_in_one_sentence_what_they_need) {
  const auto of = [](const char* name, ScheduleSize size) {
    return refusal([&] { generate_schedule(name, size); });
  };
  EXPECT_EQ(of("gpipe", {4, 8, 2}),
            "gpipe has one stage on each rank, not 2: leave out -v, or choose interleaved_1f1b or "
            "breadth_first");
  EXPECT_EQ(of("interleaved_1f1b", {4, 9, 2}),
            "interleaved_1f1b passes 9 micro-batches through 4 ranks in 2 equal rounds, which they "
            "do not divide into: choose 8 or 12 micro-batches");
  EXPECT_EQ(of("interleaved_1f1b", {4, 8, 1}),
            "interleaved_1f1b needs two or more stages on each rank: choose -v 2, or 1f1b");
  EXPECT_EQ(of("zb_h2", {4, 6, 1}),
            "zb_h2 begins with 7 forwards on rank 0 and has 6 micro-batches: choose at least 7 "
            "micro-batches, or zb_h1");
  EXPECT_EQ(of("zb_v", {4, 8, 1}),
            "zb_v has two stages on each rank, in the shape of a V, not 1: choose -v 2");
  EXPECT_EQ(of("dualpipe_v", {4, 7, 2}),
            "dualpipe_v needs as many micro-batches as stages, 8, and has 7: choose at least 8 "
            "micro-batches, or zb_v");
  EXPECT_EQ(of("pipedream", {4, 8, 1}),
            "there is no pipeline schedule 'pipedream': choose one of gpipe, 1f1b, "
            "interleaved_1f1b, breadth_first, zb_h1, zb_h2, zb_2p, zb_v, dualpipe_v");
  EXPECT_EQ(of("1f1b", {0, 8, 1}), "0 ranks: choose 1 to 1024");
  EXPECT_EQ(of("1f1b", {4, -1, 1}), "-1 micro-batches: choose 1 to 65536");
  EXPECT_EQ(of("1f1b", {1024, 65536, 1}),
            "1024 stages times 65536 micro-batches are more than the 1048576 that a schedule may "
            "have: choose fewer micro-batches");
}

// Reproducible mode adds them along a tree, which has the same bits from either end.
TEST(pipeline_schedule_generators, compute_a_stages_weight_gradients_in_order_or_backwards) {
  for_all_schedules([&](const Schedule& s, const ScheduleSize& size) {
    std::map<int, std::vector<int>> orders;
    for (const auto& actions : s.actions)
      for (const Action& a : actions)
        if (gives_weight_gradient(a.kind)) orders[a.stage].push_back(a.micro_batch);
    for (auto& [stage, order] : orders) {
      const bool in_order = std::is_sorted(order.begin(), order.end());
      EXPECT_TRUE(in_order || std::is_sorted(order.rbegin(), order.rend()))
          << described(s, size) << ", stage " << stage;
    }
  });
}

// What they refuse is what their conditions say, and nothing else.
TEST(pipeline_schedule_generators, exist_for_every_size_within_their_conditions) {
  std::map<std::string, int> sizes;
  const int all = for_all_schedules([&](const Schedule& s, const ScheduleSize& size) {
    ++sizes[s.name];
    const int p = size.ranks, m = size.micro_batches, v = size.stages_per_rank;
    EXPECT_EQ(s.ranks(), p);
    EXPECT_EQ(s.stages(), p * v);
    EXPECT_EQ(s.micro_batches, m);
  });
  int rounds = 0, h2 = 0, dual = 0;
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      rounds += m < 2 * p || m % (m / p) == 0;
      h2 += m >= 2 * p - 1, dual += m >= 2 * p;
    }
  const std::map<std::string, int> expected{
      {"gpipe", 128},         {"1f1b", 128},  {"interleaved_1f1b", 3 * rounds},
      {"breadth_first", 512}, {"zb_h1", 128}, {"zb_h2", h2},
      {"zb_2p", 128},         {"zb_v", 128},  {"dualpipe_v", dual}};
  EXPECT_EQ(sizes, expected);
  EXPECT_EQ(all, 128 * 5 + 512 + 3 * rounds + h2 + dual);
}

}  // namespace
}  // namespace trireme::pipeline::testing::generators_test
