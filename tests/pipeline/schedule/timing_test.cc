// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/timing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"

namespace trireme::pipeline::testing::timing_test {
namespace {

using trireme::testing::refusal;

struct Figures {
  double step_idle, span_idle;  // beside the work of the busiest rank
  int kept;
};

Figures figures_of(const Schedule& s, const StageCost& cost) {
  const Timing timing = simulate(s, {{cost}, 0});
  Figures f{timing.makespan, 0, 0};
  for (const RankTiming& r : timing.ranks)
    f.span_idle = std::max(f.span_idle, r.span()), f.kept = std::max(f.kept, r.kept);
  f.step_idle -= timing.ranks[0].busy, f.span_idle -= timing.ranks[0].busy;
  return f;
}

TEST(pipeline_schedule_timing, a_table_by_hand_takes_the_time_it_takes_by_hand) {
  // Rank 1 waits 2 + 0.5 for its input; rank 0 then waits for 3 + 1.5 + 1 and twice 0.5.
  const Schedule s = read_table("0F0,0I0,0W0\n1F0,1I0,1W0\n", "t.csv");
  const Timing t = simulate(s, {{{2, 4, 0.25}, {3, 1.5, 1}}, 0.5});
  ASSERT_EQ(t.ranks.size(), 2u);
  EXPECT_EQ(t.ranks[1].start, 2.5);
  EXPECT_EQ(t.ranks[1].spans[1].end, 7);
  EXPECT_EQ(t.ranks[1].end, 8);
  EXPECT_EQ(t.ranks[0].spans[1].start, 7.5);
  EXPECT_EQ(t.makespan, 11.75);
  EXPECT_EQ(t.ranks[0].busy, 6.25);
  EXPECT_DOUBLE_EQ(t.bubble(), 1 - 6.25 / 11.75);
  EXPECT_DOUBLE_EQ(t.span_bubble(), 1 - 6.25 / 11.75);
  EXPECT_EQ(t.stages[1].busy, 5.5);
  EXPECT_EQ(t.stages[1].rank, 1);
}

// Idle time as the papers give it (docs/model_parallel.md), for every size where its condition on m
// holds, and several costs. Published for F ≥ W, and for DualPipeV and ZB-V more.
TEST(pipeline_schedule_timing, the_published_bubble_holds_where_its_condition_does) {
  const StageCost costs[] = {{1, 1, 1}, {4, 4, 3}, {3, 3, 2}, {2, 3, 1}};
  for (const StageCost& c : costs) {
    const double F = c.forward, I = c.input_gradient, W = c.weight_gradient, B = I + W;
    std::map<std::string, int> compared;
    for_all_schedules([&](const Schedule& s, const ScheduleSize& size) {
      const int p = size.ranks, m = size.micro_batches, v = size.stages_per_rank;
      const Figures f = figures_of(s, c);
      const auto same = [&](double idle, double published) {
        ++compared[s.name];
        EXPECT_NEAR(idle, (p - 1) * published, 1e-9) << described(s, size);
      };
      if (s.name == "gpipe" || s.name == "1f1b") same(f.step_idle, F + B);
      if (s.name == "interleaved_1f1b" && m % p == 0) same(f.step_idle, F + B);
      if (s.name == "breadth_first" && (m >= p || v == 1)) same(f.step_idle, F + B);
      if (s.name == "zb_h1" && m >= p) same(f.step_idle, F + I - W);
      if (s.name == "zb_h2") same(f.span_idle, F + I - 2 * W);
      if (s.name == "zb_v" && m >= 2 * p - 1 && F == I && I == W) same(f.span_idle, 0);
      if (s.name == "dualpipe_v" && F == I) same(f.step_idle, F + 2 * B - 3 * W);
    });
    EXPECT_EQ(compared["1f1b"], 128);
    EXPECT_EQ(compared["interleaved_1f1b"], 3 * (16 + 8 + 5 + 4 + 3 + 2 + 2 + 2));
    EXPECT_EQ(compared["breadth_first"], 428);
    EXPECT_EQ(compared["zb_h1"], 100);
    EXPECT_EQ(compared["zb_h2"], 72);
    EXPECT_EQ(compared["zb_v"], F == W ? 72 : 0);
    EXPECT_EQ(compared["dualpipe_v"], F == I ? 64 : 0);
  }
}

// The rates of the step: (p−1)/(m+p−1) of 1F1B, and (p−1)/(vm) of the work when interleaved.
TEST(pipeline_schedule_timing, rates_are_the_textbooks) {
  const Timing plain = simulate(generate_schedule("1f1b", {4, 8, 1}), {});
  EXPECT_DOUBLE_EQ(plain.bubble(), 3.0 / 11);
  const Timing looped = simulate(generate_schedule("interleaved_1f1b", {4, 8, 2}), {});
  EXPECT_DOUBLE_EQ(looped.makespan / looped.ranks[0].busy - 1, 3.0 / 16);
  const Timing h1 = simulate(generate_schedule("zb_h1", {4, 8, 1}), {});
  EXPECT_DOUBLE_EQ((h1.makespan - 24) / (plain.makespan - 24), 1.0 / 3);
  const Timing h2 = simulate(generate_schedule("zb_h2", {4, 8, 1}), {});
  EXPECT_DOUBLE_EQ(h2.span_bubble(), 0);
}

TEST(pipeline_schedule_timing, the_published_memory_holds_where_its_condition_does) {
  std::map<std::string, int> compared;
  for_all_schedules([&](const Schedule& s, const ScheduleSize& size) {
    const int p = size.ranks, m = size.micro_batches, v = size.stages_per_rank;
    const int kept = figures_of(s, {}).kept;
    const auto same = [&](int published) {
      ++compared[s.name];
      EXPECT_EQ(kept, published) << described(s, size);
    };
    if (s.name == "gpipe") same(m);
    if (s.name == "1f1b" || s.name == "zb_h1") same(std::min(p, m));
    if (s.name == "interleaved_1f1b" && m % p == 0) same(std::min(p * v + p - 1, m * v));
    if (s.name == "breadth_first") same(m * v);
    if (s.name == "zb_h2") same(2 * p - 1);
    if (s.name == "zb_v") same(std::min(2 * p, 2 * m));
    if (s.name == "dualpipe_v") same(2 * p + 1);
  });
  EXPECT_EQ(compared.size(), 8u);
  for (const StageCost& c : {StageCost{1, 1, 1}, StageCost{2, 2, 1}, StageCost{1, 3, 2}})
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m) {
        const Costs costs{{c}, 0.1};
        const Schedule s = generate_schedule("zb_2p", {p, m, 1}, costs);
        for (const auto& list : s.actions) {
          int inputs = 0, waiting = 0;  // which count for 3/8 of an input
          for (const Action& a : list) {
            inputs += a.kind == ActionKind::forward;
            inputs -= a.kind == ActionKind::input_gradient;
            waiting += a.kind == ActionKind::input_gradient;
            waiting -= a.kind == ActionKind::weight_gradient;
            ASSERT_LE(8 * inputs + 3 * waiting, 16 * p) << described(s, {p, m, 1});
          }
        }
      }
}

TEST(pipeline_schedule_timing, every_rank_computes_all_of_its_work_once_and_in_order) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    const Timing t = simulate(s, {{{2, 3, 1}}, 0.5});
    for (const RankTiming& r : t.ranks) {
      EXPECT_DOUBLE_EQ(r.busy, 6.0 * size.micro_batches * size.stages_per_rank);
      for (size_t i = 1; i < r.spans.size(); ++i)
        ASSERT_GE(r.spans[i].start, r.spans[i - 1].end) << described(s, size);
      EXPECT_LE(r.end, t.makespan);
    }
  });
}

// Table 5 of the Zero Bubble paper (arXiv:2401.10241): bubble rates that its authors computed from
// the times that they profiled (its appendix). 1F1B-I with as many stages as layers allow; ZB-1p is
// what their search found with the memory of 1F1B, which is ZB-H1 in every row; ZB-2p what it found
// with twice that, where ours is another, simpler one.
TEST(pipeline_schedule_timing, the_72_bubble_rates_of_the_zero_bubble_paper_come_out) {
  struct Row {
    int p, m, v;
    double f, i, w, transfer, plain, interleaved, h1, h2, zb_1p, zb_2p;
  };
  const Row rows[] = {
      {8, 24, 3, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433},
      {8, 32, 3, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039},
      {8, 64, 3, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026},
      {8, 24, 4, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029},
      {8, 32, 4, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022},
      {8, 64, 4, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0320, 0.0554, 0.0294, 0.0554, 0.0010},
      {16, 48, 3, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1104, 0.1397, 0.0672, 0.1397, 0.0066},
      {16, 64, 3, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.0852, 0.1088, 0.0516, 0.1088, 0.0054},
      {16, 128, 3, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0445, 0.0576, 0.0266, 0.0576, 0.0028},
      {32, 96, 2, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1493, 0.1421, 0.0641, 0.1421, 0.0038},
      {32, 128, 2, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1164, 0.1106, 0.0490, 0.1106, 0.0029},
      {32, 256, 2, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0624, 0.0594, 0.0257, 0.0594, 0.0018},
  };
  for (const Row& row : rows) {
    const auto rate = [&](const char* name, int v) {
      const Costs costs{{{row.f / v, row.i / v, row.w / v}}, row.transfer};
      return simulate(generate_schedule(name, {row.p, row.m, v}, costs), costs).span_bubble();
    };
    // To the last digit that they print, but interleaved, whose order they do not give.
    EXPECT_NEAR(rate("1f1b", 1), row.plain, 6e-5);
    EXPECT_NEAR(rate("interleaved_1f1b", row.v), row.interleaved, 0.004);
    EXPECT_NEAR(rate("zb_h1", 1), row.h1, 6e-5);
    EXPECT_NEAR(rate("zb_h2", 1), row.h2, 6e-5);
    EXPECT_NEAR(rate("zb_h1", 1), row.zb_1p, 6e-5);
    EXPECT_NEAR(rate("zb_2p", 1), row.zb_2p, 0.0125);
  }
}

TEST(pipeline_schedule_timing, where_receives_stand_changes_no_time) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    const Costs costs{{{2, 3, 1}}, 0.75};
    const double expected = simulate(s, costs).makespan;
    for (const Receives r : {Receives::late, Receives::one_ahead, Receives::when_sent})
      EXPECT_EQ(simulate(place_messages(s, r), costs).makespan, expected) << described(s, size);
  });
}

TEST(pipeline_schedule_timing, costs_that_are_no_times_are_refused) {
  const Schedule s = generate_schedule("1f1b", {2, 2, 1});
  const auto of = [&](Costs costs) { return refusal([&] { simulate(s, costs); }); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(of({{{-1, 1, 1}}, 0}), "costs -1, 1, 1: give three times, none negative and not all 0");
  EXPECT_EQ(of({{{1, nan, 1}}, 0}),
            "costs 1, nan, 1: give three times, none negative and not all 0");
  EXPECT_EQ(of({{{0, 0, 0}}, 0}), "costs 0, 0, 0: give three times, none negative and not all 0");
  EXPECT_EQ(of({{{}, {}, {}}, 0}),
            "costs of 3 stages were given, and there are 2: give one for all, or one each");
  EXPECT_EQ(of({{{}}, -2}), "a transfer of -2: give a time that is not negative");
  EXPECT_EQ(of({{{}, {}}, 0}), "");
}

}  // namespace
}  // namespace trireme::pipeline::testing::timing_test
