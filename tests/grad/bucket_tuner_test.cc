// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/tuning/bucket_tuner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace trireme::bucket_tuner_test {
namespace {

using Cost = std::function<double(const BucketSetting&, int step)>;

struct Outcome {
  double seconds = 0, default_seconds = 0;
  int steps_to_end = -1;
};

/// A run whose step times come a step late, as those of a reducer do.
Outcome run(BucketTuner& tuner, const Cost& cost, int steps) {
  Outcome all;
  const BucketSetting start = tuner.setting();
  BucketSetting of_next = start, of_last = start;
  for (int s = 0; s < steps; ++s) {
    const double now = cost(of_next, s);
    all.seconds += now;
    all.default_seconds += cost(start, s);
    if (s > 0) tuner.took(cost(of_last, s - 1));
    of_last = of_next;
    of_next = tuner.setting();
    if (tuner.done() && all.steps_to_end < 0) all.steps_to_end = s;
  }
  return all;
}

double noise(int step) { return 1 + 0.01 * std::sin(1.7 * step); }

const BucketSetting kStart{4 << 20};
const std::vector<int64_t> kSizes{1 << 20, 16 << 20, 64 << 20};

TEST(grad_bucket_tuner, finds_the_size_the_order_and_the_algorithm_that_are_fastest) {
  for (int64_t best : kSizes)
    for (BucketOrder order : {BucketOrder::arrival, BucketOrder::registration})
      for (BucketAlgorithm algorithm :
           {BucketAlgorithm::all_reduce, BucketAlgorithm::scatter_gather}) {
        BucketTuner tuner(kStart, kSizes);
        run(
            tuner,
            [&](const BucketSetting& s, int step) {
              return noise(step) * (1 +
                                    0.05 * std::abs(std::log2(static_cast<double>(s.bytes) /
                                                              static_cast<double>(best))) +
                                    0.1 * (s.order != order) + 0.1 * (s.algorithm != algorithm));
            },
            2000);
        EXPECT_TRUE(tuner.done());
        EXPECT_EQ(tuner.best(), (BucketSetting{best, order, algorithm}));
        EXPECT_LT(tuner.seconds_after(), tuner.seconds_before());
      }
}

TEST(grad_bucket_tuner, what_is_not_better_by_more_than_the_gain_is_not_taken) {
  BucketTuner tuner(kStart, kSizes);
  run(
      tuner,
      [](const BucketSetting& s, int step) { return noise(step) * (s == kStart ? 1.0 : 0.99); },
      2000);
  EXPECT_TRUE(tuner.done());
  EXPECT_EQ(tuner.best(), kStart);
  EXPECT_EQ(tuner.tried(), 5);
  EXPECT_EQ(tuner.seconds_before(), 0);
}

// Also where every candidate is terrible; what is over the budget is one block.
TEST(grad_bucket_tuner,
     a_run_is_never_slower_than_the_default_by_more_than_the_budget_and_a_block) {
  for (double worse : {1.01, 1.05, 1.2, 3.0, 20.0})
    for (int steps : {50, 300, 3000}) {
      BucketTuner tuner(kStart, kSizes);
      const Outcome all = run(
          tuner, [&](const BucketSetting& s, int) { return s == kStart ? 1.0 : worse; }, steps);
      const double block = 7 * (worse - 1);
      EXPECT_LE(all.seconds, 1.02 * all.default_seconds + block) << worse << " " << steps;
      EXPECT_EQ(tuner.best(), kStart);
    }
}

TEST(grad_bucket_tuner, one_hopeless_block_ends_a_candidate) {
  BucketTuner tuner(kStart, kSizes);
  int slow = 0;
  run(
      tuner,
      [&](const BucketSetting& s, int) {
        slow += s != kStart;
        return s == kStart ? 1.0 : 1.5;
      },
      5000);
  EXPECT_TRUE(tuner.done());
  EXPECT_EQ(tuner.tried(), 5);
  EXPECT_LE(slow, 2 * 5 * 7) << "a block each, asked for twice here";
}

TEST(grad_bucket_tuner, without_candidates_of_size_order_and_algorithm_are_tried) {
  BucketTuner tuner(kStart, {});
  run(
      tuner, [](const BucketSetting&, int step) { return noise(step); }, 500);
  EXPECT_EQ(tuner.tried(), 2);
}

}  // namespace
}  // namespace trireme::bucket_tuner_test
