// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/save_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace save_schedule_test {

using namespace trireme;

namespace {

struct Save {
  int64_t step = 0;
  double begin = 0, end = 0;
};

/// A run of `seconds`, whose steps and saves take what these say.
std::vector<Save> saves_of(const SaveRules& rules, double seconds,
                           const std::function<double()>& step_time,
                           const std::function<double()>& save_time) {
  SaveSchedule schedule(rules);
  std::vector<Save> saves;
  double now = 0;
  for (int64_t step = 1; now < seconds; ++step) {
    const bool due = schedule.by_clock(now) || schedule.by_number(step);
    const double took = step_time();
    now += took;
    schedule.step_done(took);
    if (!due) continue;
    saves.push_back({step, now, now + save_time()});
    schedule.saved(saves.back().end, saves.back().end - now);
    now = saves.back().end;
  }
  return saves;
}

std::function<double()> always(double seconds) {
  return [seconds] { return seconds; };
}

double spent(const std::vector<Save>& saves) {
  double sum = 0;
  for (const Save& s : saves) sum += s.end - s.begin;
  return sum;
}

}  // namespace

TEST(train_save_schedule, by_number_means_multiples_of_either_key) {
  const SaveSchedule schedule({.every = 4, .every_too = 6});
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= 12; ++step)
    if (schedule.by_number(step)) due.push_back(step);
  EXPECT_EQ(due, (std::vector<int64_t>{4, 6, 8, 12}));
  EXPECT_FALSE(SaveSchedule({}).by_number(12));
}

TEST(train_save_schedule, without_a_rule_of_the_clock_no_step_is_due_by_it) {
  EXPECT_TRUE(saves_of({}, 1e5, always(10), always(1)).empty());
  for (const Save& s : saves_of({.every = 50}, 1e4, always(1), always(1)))
    EXPECT_EQ(s.step % 50, 0);
}

TEST(train_save_schedule, minutes_are_kept_to_within_two_steps_whatever_steps_and_saves_take) {
  std::mt19937 random(3);
  for (double every : {30.0, 600.0})
    for (double slowest : {0.2, 5.0, 40.0}) {
      std::uniform_real_distribution<double> step(slowest / 2, slowest), save(0, 100);
      const auto saves = saves_of(
          {.every_seconds = every}, 30 * (every + 100), [&] { return step(random); },
          [&] { return save(random); });
      EXPECT_GE(saves.size(), 10u);
      double last = 0;
      for (const Save& s : saves) {
        EXPECT_GE(s.begin - last, every - slowest);
        EXPECT_LE(s.begin - last, every + 2 * slowest);
        last = s.end;
      }
    }
}

TEST(train_save_schedule, the_first_automatic_save_measures) {
  const auto saves = saves_of({.automatic = true}, 30, always(5), always(1));
  ASSERT_EQ(saves.size(), 1u);
  EXPECT_EQ(saves[0].step, SaveSchedule::kFirstStep);
}

TEST(train_save_schedule, saving_costs_at_most_the_budget_from_the_second_save_on) {
  std::mt19937 random(4);
  for (double budget : {0.005, 0.02, 0.2, 0.5})
    for (double cost : {0.001, 0.3, 20.0})
      for (double slowest : {0.2, 1.0, 30.0}) {
        std::uniform_real_distribution<double> step(slowest / 10, slowest);
        const double run = std::max(7 * cost / budget, 300.0);
        const auto saves = saves_of(
            {.automatic = true, .budget = budget}, run, [&] { return step(random); }, always(cost));
        ASSERT_GE(saves.size(), 5u);
        double sum = cost;
        for (size_t i = 1; i < saves.size(); ++i) {
          sum += cost;
          EXPECT_LE(sum, budget * saves[i].end * (1 + 1e-9))
              << "budget " << budget << " cost " << cost << " steps to " << slowest;
        }
      }
}

TEST(train_save_schedule, it_saves_as_often_as_the_budget_allows) {
  for (double budget : {0.01, 0.1})
    for (double cost : {0.01, 1.0, 20.0})
      for (double step : {0.5, 3.0}) {
        const auto saves = saves_of({.automatic = true, .budget = budget}, 10 * cost / budget + 1e3,
                                    always(step), always(cost));
        const double wanted =
            std::max(SaveSchedule::kLeastSeconds, cost / budget - cost) + 2 * step;
        for (size_t i = 2; i < saves.size(); ++i)
          EXPECT_LE(saves[i].begin - saves[i - 1].end, wanted * (1 + 1e-9))
              << "budget " << budget << " cost " << cost << " steps of " << step;
      }
}

// What was spent too much is made up for, and the share comes back below the budget.
TEST(train_save_schedule, saves_that_become_slow_are_made_fewer) {
  int n = 0;
  const auto saves = saves_of({.automatic = true, .budget = 0.05}, 2e5, always(1),
                              [&] { return ++n < 100 ? 1.0 : 60.0; });
  ASSERT_GT(saves.size(), 150u);
  EXPECT_LE(spent(saves), 0.05 * saves.back().end + 60);
  for (size_t i = 110; i < saves.size(); ++i) EXPECT_GE(saves[i].begin - saves[i - 1].end, 1000);
}

// A save is waited for a little and then written for `writing` seconds, beside steps that take
// `slower` times as long.
TEST(train_save_schedule, what_steps_take_longer_beside_a_save_is_within_the_budget_too) {
  constexpr double kBudget = 0.02, kWait = 0.1;
  for (const double writing : {2.0, 30.0, 200.0})
    for (const double slower : {1.0, 1.05, 1.5, 3.0})
      for (const double noise : {0.0, 0.02}) {
        std::mt19937 random(5);
        std::uniform_real_distribution<double> step(1 - noise, 1 + noise);
        SaveSchedule schedule({.automatic = true, .budget = kBudget});
        double now = 0, lost = 0, written_at = 0, beside = 0;
        bool under_way = false;
        int saves = 0;
        const double run = 30 * (kWait + writing * (slower - 1)) / kBudget + 1000;
        while (now < run) {
          const bool due = schedule.by_clock(now);
          const double alone = step(random), took = alone * (under_way ? slower : 1);
          now += took, lost += took - alone;
          schedule.step_done(took);
          if (under_way) beside += took;
          if (under_way && now >= written_at) under_way = false, schedule.written(now);
          if (!due) continue;
          ASSERT_FALSE(under_way) << "it would have been waited for";
          // The first one measures; what a step takes is known to within the noise.
          if (++saves > 2) {
            EXPECT_LE(lost, kBudget * now + noise * beside + 1e-9)
                << writing << " s written beside steps " << slower << " times as long, save "
                << saves << " at " << now;
          }
          now += kWait, lost += kWait;
          schedule.saved(now, kWait, true);
          under_way = true, written_at = now + writing;
        }
        // And no fewer than it allows, in whole steps.
        const double written = (std::floor(writing / slower) + 1) * slower;
        const double each = std::max((kWait + written * (1 - 1 / slower)) / kBudget,
                                     kWait + written + SaveSchedule::kLeastSeconds + 2);
        EXPECT_GE(saves, std::floor(run / (each * (1 + 2 * noise)) * (1 - 10 * noise)) - 1)
            << writing << " " << slower << " " << noise;
      }
}

// A machine that stands still for a minute, once, does not end the saving; nor do steps of which a
// few are far longer than most.
TEST(train_save_schedule, one_step_that_stalls_beside_a_save_is_not_what_saves_cost) {
  for (const bool skewed : {false, true}) {
    std::mt19937 random(6);
    std::exponential_distribution<double> late(1 / 0.3);
    SaveSchedule schedule({.automatic = true, .budget = 0.02});
    double now = 0, written_at = 0, longest = 0, last = 0;
    bool under_way = false;
    int saves = 0;
    while (now < 10'000) {
      const bool due = schedule.by_clock(now);
      double took = skewed ? 1 + late(random) : 1;
      if (saves == 20 && under_way && written_at - now > 1 && written_at - now < 3) took = 60;
      now += took;
      schedule.step_done(took);
      if (under_way && now >= written_at) under_way = false, schedule.written(now);
      if (!due) continue;
      if (saves++ > 3) longest = std::max(longest, now - last);
      last = now += 0.01;
      schedule.saved(now, 0.01, true);
      under_way = true, written_at = now + 5;
    }
    EXPECT_GT(saves, skewed ? 200 : 400);
    EXPECT_LT(longest, 200);
  }
}

TEST(train_save_schedule, cheap_saves_are_not_made_more_often_than_every_ten_seconds) {
  for (const auto saves = saves_of({.automatic = true}, 1000, always(0.01), always(1e-4));
       const Save& s : saves)
    EXPECT_TRUE(&s == &saves[0] || s.begin - (&s - 1)->end >= SaveSchedule::kLeastSeconds);
}

TEST(train_save_schedule, the_largest_wish_of_several_ranks_holds_what_all_need) {
  for (int stop_a : {0, 1, 2, 15})
    for (int stop_b : {0, 1, 2, 15})
      for (bool save_a : {false, true})
        for (bool save_b : {false, true}) {
          const int largest =
              std::max(StepWish{stop_a, save_a}.code(), StepWish{stop_b, save_b}.code());
          const StepWish both = StepWish::of(largest);
          EXPECT_EQ(both.stop, std::max(stop_a, stop_b));
          EXPECT_EQ(both.save, save_a || save_b || stop_a || stop_b);
        }
}

// A rank that knows it says so with each step; a stop or a save waits for the one under way anyway.
TEST(train_save_schedule, that_a_save_has_ended_is_heard_unless_ranks_stop_or_save) {
  for (int stop : {0, 15})
    for (bool save : {false, true})
      for (bool ended : {false, true}) {
        const StepWish other{stop, save}, mine{0, false, ended};
        const StepWish both = StepWish::of(std::max(other.code(), mine.code()));
        EXPECT_EQ(both.stop, stop);
        EXPECT_EQ(both.save, save || stop);
        EXPECT_EQ(both.ended, ended && !stop && !save);
        const StepWish one = StepWish::of(StepWish{stop, save, ended}.code());
        EXPECT_EQ(one.ended, ended) << "what a rank wishes itself is not lost";
      }
}

}  // namespace save_schedule_test
