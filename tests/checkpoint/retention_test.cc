// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace retention_test {

using namespace trireme;

namespace {

using Steps = std::vector<int64_t>;

/// Every list of up to five steps (multiples of ten, with losses 1, 2 or none), by its number.
std::vector<SavedStep> list_of(int number) {
  std::vector<SavedStep> steps;
  for (int i = 0; i < 5; ++i, number /= 4) {
    SavedStep s{10 * (i + 1), {}};
    if (number % 4 == 0) continue;
    if (number % 4 > 1) s.loss = number % 4 - 1;
    steps.push_back(s);
  }
  return steps;
}
constexpr int kLists = 4 * 4 * 4 * 4 * 4;

std::vector<SavedStep> without(std::vector<SavedStep> steps, const Steps& gone) {
  std::erase_if(steps, [&](const SavedStep& s) {
    return std::find(gone.begin(), gone.end(), s.step) != gone.end();
  });
  return steps;
}

template <class Body>
void for_all(const Body& body) {
  for (int number = 0; number < kLists; ++number)
    for (int64_t current : {20, 50})
      for (int64_t keep : {1, 2, 9})
        for (int64_t best : {0, 1, 2})
          for (int64_t every : {0, 20, 30})
            body(list_of(number), current, RetentionRule{keep, best, every});
}

}  // namespace

TEST(checkpoint_retention, what_each_rule_keeps) {
  const std::vector<SavedStep> steps = {{10, 3.0}, {20, 1.0}, {30, {}}, {40, 2.0}, {50, 4.0}};
  EXPECT_EQ(steps_to_delete(steps, 50, {.keep = 2}), (Steps{10, 20, 30}));
  EXPECT_EQ(steps_to_delete(steps, 50, {.keep = 1, .best = 1}), (Steps{10, 30, 40}));
  EXPECT_EQ(steps_to_delete(steps, 50, {.keep = 1, .best = 3}), (Steps{30}));
  EXPECT_EQ(steps_to_delete(steps, 50, {.keep = 1, .every = 30}), (Steps{10, 20, 40}));
  EXPECT_EQ(steps_to_delete(steps, 30, {.keep = 1}), (Steps{10, 20})) << "later steps stay";
  EXPECT_EQ(steps_to_delete({}, 50, {.keep = 1}), Steps{});
}

TEST(checkpoint_retention, the_step_just_saved_and_later_ones_never_go) {
  for_all([](const auto& steps, int64_t current, const RetentionRule& rule) {
    for (int64_t step : steps_to_delete(steps, current, rule)) EXPECT_LT(step, current);
  });
}

TEST(checkpoint_retention, each_rule_keeps_as_many_as_it_says_or_all_that_there_are) {
  for_all([](const auto& steps, int64_t current, const RetentionRule& rule) {
    const auto gone = steps_to_delete(steps, current, rule);
    int64_t newest = 0, best = 0;
    std::vector<SavedStep> own = steps;
    std::erase_if(own, [&](const SavedStep& s) { return s.step > current; });
    for (int64_t step : gone) {
      const auto at = std::find_if(own.begin(), own.end(), [&](auto& s) { return s.step == step; });
      ASSERT_NE(at, own.end()) << "it is not in the list";
      newest = best = 0;
      for (const SavedStep& s : own) {
        const bool stays = std::find(gone.begin(), gone.end(), s.step) == gone.end();
        newest += stays && s.step > step;
        best += stays && at->loss && s.loss && *s.loss <= *at->loss;
      }
      EXPECT_GE(newest, rule.keep);
      EXPECT_TRUE(!at->loss || best >= rule.best);
      EXPECT_TRUE(!rule.every || step % rule.every != 0);
    }
  });
}

TEST(checkpoint_retention, asked_again_nothing_more_goes) {
  for_all([](const auto& steps, int64_t current, const RetentionRule& rule) {
    const auto left = without(steps, steps_to_delete(steps, current, rule));
    EXPECT_EQ(steps_to_delete(left, current, rule), Steps{});
  });
}

TEST(checkpoint_retention, a_rule_that_keeps_more_deletes_no_other_step) {
  for_all([](const auto& steps, int64_t current, const RetentionRule& rule) {
    const auto gone = steps_to_delete(steps, current, rule);
    for (const RetentionRule& more :
         {RetentionRule{rule.keep + 1, rule.best, rule.every},
          RetentionRule{rule.keep, rule.best + 1, rule.every},
          RetentionRule{rule.keep, rule.best, rule.every ? rule.every / 10 : 0}}) {
      const auto fewer = steps_to_delete(steps, current, more);
      EXPECT_TRUE(std::includes(gone.begin(), gone.end(), fewer.begin(), fewer.end()));
    }
  });
}

// A run as it goes on: what it leaves behind is bounded, and the best of all steps is there.
TEST(checkpoint_retention, a_run_of_any_losses_ends_with_the_best_and_the_newest_of_all) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const RetentionRule rule{1 + static_cast<int64_t>(random() % 3),
                             static_cast<int64_t>(random() % 3), 0};
    std::vector<SavedStep> there, all;
    for (int64_t step = 1; step <= 40; ++step) {
      SavedStep s{step, {}};
      if (random() % 3) s.loss = static_cast<double>(random() % 50);
      if (random() % 10 == 0) s.loss = NAN;
      there.push_back(s);
      all.push_back(s);
      there = without(there, steps_to_delete(there, step, rule));
      ASSERT_LE(there.size(), static_cast<size_t>(rule.keep + rule.best));
    }
    std::set<int64_t> left;
    for (const SavedStep& s : there) left.insert(s.step);
    for (int64_t i = 0; i < rule.keep; ++i) EXPECT_TRUE(left.contains(40 - i));
    std::erase_if(all, [](const SavedStep& s) { return !s.loss || std::isnan(*s.loss); });
    std::sort(all.begin(), all.end(), [](const SavedStep& a, const SavedStep& b) {
      return *a.loss != *b.loss ? *a.loss < *b.loss : a.step > b.step;
    });
    for (int64_t i = 0; i < rule.best; ++i)
      EXPECT_TRUE(left.contains(all[static_cast<size_t>(i)].step)) << "trial " << trial;
  }
}

TEST(checkpoint_retention, a_loss_is_among_the_best_when_fewer_are_better) {
  const std::vector<SavedStep> steps = {{10, 3.0}, {20, 1.0}, {30, {}}, {40, NAN}};
  EXPECT_TRUE(is_among_best(steps, 2.0, 2));
  EXPECT_FALSE(is_among_best(steps, 2.0, 1));
  EXPECT_TRUE(is_among_best(steps, 0.5, 1));
  EXPECT_TRUE(is_among_best({}, 9, 1));
  EXPECT_FALSE(is_among_best({}, 9, 0));
  EXPECT_FALSE(is_among_best({}, NAN, 3));
  // It agrees with what stays.
  for (int number = 0; number < kLists; ++number)
    for (double loss : {0.5, 1.0, 1.5, 2.0, 3.0}) {
      auto all = list_of(number);
      const bool among = is_among_best(all, loss, 2);
      all.push_back({60, loss});
      all.push_back({70, {}});
      const auto gone = steps_to_delete(all, 70, {.keep = 1, .best = 2});
      EXPECT_EQ(among, std::find(gone.begin(), gone.end(), 60) == gone.end());
    }
}

}  // namespace retention_test
