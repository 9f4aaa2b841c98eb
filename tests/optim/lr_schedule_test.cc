// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

using namespace trireme;

namespace {

std::string refusal(const ScheduleOptions& options) {
  try {
    LRScheduler scheduler(options);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(optim_lr_schedule, constant_after_warm_up) {
  LRScheduler plain({.type = "constant", .lr = 0.5});
  EXPECT_EQ(plain.lr_at(0), 0.5);
  EXPECT_EQ(plain.lr_at(1'000'000), 0.5);
  LRScheduler warm({.type = "constant", .lr = 0.5, .warmup_num_steps = 4});
  EXPECT_DOUBLE_EQ(warm.lr_at(0), 0.125);
  EXPECT_DOUBLE_EQ(warm.lr_at(2), 0.375);
  EXPECT_DOUBLE_EQ(warm.lr_at(3), 0.5);
  EXPECT_DOUBLE_EQ(warm.lr_at(4), 0.5);
}

TEST(optim_lr_schedule, linear_goes_straight_to_the_end_ratio) {
  LRScheduler s({.type = "linear",
                 .lr = 1.0,
                 .warmup_num_steps = 10,
                 .total_num_steps = 110,
                 .min_ratio = 0.1});
  EXPECT_DOUBLE_EQ(s.lr_at(4), 0.5);
  EXPECT_DOUBLE_EQ(s.lr_at(10), 1.0);
  EXPECT_DOUBLE_EQ(s.lr_at(60), 0.55);
  EXPECT_DOUBLE_EQ(s.lr_at(110), 0.1);
  EXPECT_DOUBLE_EQ(s.lr_at(10'000), 0.1);
}

TEST(optim_lr_schedule, cosine_passes_its_known_points) {
  LRScheduler s({.type = "cosine",
                 .lr = 2.0,
                 .warmup_num_steps = 10,
                 .total_num_steps = 110,
                 .min_ratio = 0.1});
  EXPECT_DOUBLE_EQ(s.lr_at(9), 2.0);
  EXPECT_DOUBLE_EQ(s.lr_at(10), 2.0);
  EXPECT_NEAR(s.lr_at(35), 2.0 * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2), 1e-12);  // cos 45°
  EXPECT_NEAR(s.lr_at(60), 2.0 * 0.55, 1e-12);
  EXPECT_NEAR(s.lr_at(110), 0.2, 1e-12);
  EXPECT_NEAR(s.lr_at(5000), 0.2, 1e-12);
  LRScheduler no_warmup({.type = "cosine", .lr = 2.0, .total_num_steps = 100});
  EXPECT_DOUBLE_EQ(no_warmup.lr_at(0), 2.0);
  EXPECT_NEAR(no_warmup.lr_at(100), 0, 1e-12);
}

TEST(optim_lr_schedule, warmup_lr_is_logarithmic_by_default_and_starts_at_min) {
  LRScheduler s({.type = "WarmupLR", .lr = 0.01, .warmup_num_steps = 100});
  EXPECT_EQ(s.lr_at(0), 0);                // before the scheduler's first advance
  EXPECT_EQ(s.lr_at(1), 0);                // log 1
  EXPECT_NEAR(s.lr_at(10), 0.005, 1e-12);  // t = 9: log 10 / log 100
  EXPECT_NEAR(s.lr_at(50), 0.01 * 0.8494850021680094, 1e-12);  // t = 49: log 50 / log 100
  EXPECT_EQ(s.lr_at(101), 0.01);
  EXPECT_EQ(s.lr_at(5000), 0.01);
  LRScheduler by_default({.type = "WarmupLR", .lr = 0.01});
  EXPECT_NEAR(by_default.lr_at(100), 0.01 * 2 / 3, 1e-12);  // log 100 / log 1000
}

TEST(optim_lr_schedule, warmup_lr_linear_and_its_bounds) {
  LRScheduler s({.type = "WarmupLR",
                 .lr = 9,
                 .warmup_num_steps = 10,
                 .warmup_type = "linear",
                 .warmup_min_lr = 0.001,
                 .warmup_max_lr = 0.011});
  EXPECT_DOUBLE_EQ(s.lr_at(0), 0.001);
  EXPECT_DOUBLE_EQ(s.lr_at(1), 0.001);
  EXPECT_DOUBLE_EQ(s.lr_at(6), 0.006);
  EXPECT_DOUBLE_EQ(s.lr_at(11), 0.011);
}

TEST(optim_lr_schedule, warmup_decay_lr_falls_to_min_at_the_total) {
  LRScheduler s({.type = "WarmupDecayLR", .lr = 9, .warmup_num_steps = 10, .total_num_steps = 110});
  EXPECT_DOUBLE_EQ(s.lr_at(11),
                   0.001);  // t = 10: its own default maximum, not the optimizer's rate
  EXPECT_DOUBLE_EQ(s.lr_at(61), 0.0005);  // t = 60
  EXPECT_DOUBLE_EQ(s.lr_at(111), 0);
  EXPECT_DOUBLE_EQ(s.lr_at(500), 0);
}

TEST(optim_lr_schedule, warmup_cosine_lr_has_deepspeeds_offset_by_one) {
  LRScheduler s({.type = "WarmupCosineLR",
                 .lr = 0.1,
                 .warmup_num_steps = 10,
                 .total_num_steps = 110,
                 .warmup_type = "linear",
                 .warmup_min_ratio = 0.2,
                 .cos_min_ratio = 0.01});
  EXPECT_EQ(s.lr_at(0), 0);
  EXPECT_DOUBLE_EQ(s.lr_at(1), 0.02);
  EXPECT_DOUBLE_EQ(s.lr_at(6), 0.1 * (0.2 + 0.8 * 0.5));
  EXPECT_NEAR(s.lr_at(60), 0.1 * (0.01 + 0.99 * 0.5), 1e-12);  // t = 59: (59 - 10 + 1) / 100
  EXPECT_NEAR(s.lr_at(110), 0.001, 1e-12);
  EXPECT_NEAR(s.lr_at(300), 0.001, 1e-12);
  LRScheduler by_default({.type = "WarmupCosineLR", .lr = 0.1, .total_num_steps = 2000});
  EXPECT_NEAR(by_default.lr_at(2000), 0.1 * 0.0001, 1e-12);
  EXPECT_NEAR(by_default.lr_at(100), 0.1 * 2 / 3, 1e-12);
}

TEST(optim_lr_schedule, one_warm_up_step_means_two_as_in_deepspeed) {
  LRScheduler s({.type = "WarmupLR", .lr = 1, .warmup_num_steps = 1});
  EXPECT_EQ(s.lr_at(1), 0);
  EXPECT_DOUBLE_EQ(s.lr_at(2), 1);
}

TEST(optim_lr_schedule, what_has_no_effect_or_no_meaning_is_refused) {
  EXPECT_TRUE(contains(refusal({.type = "cosinus"}), "cosinus"));
  EXPECT_TRUE(contains(refusal({.type = "cosine"}), "total_num_steps"));
  EXPECT_TRUE(contains(refusal({.type = "constant", .total_num_steps = 5}),
                       "does not use total_num_steps"));
  EXPECT_TRUE(contains(refusal({.type = "WarmupLR", .cos_min_ratio = 0.1}), "cos_min_ratio"));
  EXPECT_TRUE(contains(refusal({.type = "WarmupLR", .warmup_num_steps = 0}), "warmup_num_steps"));
  EXPECT_TRUE(contains(refusal({.type = "WarmupLR", .warmup_type = "cubic"}), "cubic"));
  EXPECT_TRUE(contains(refusal({.type = "linear", .warmup_num_steps = 20, .total_num_steps = 10}),
                       "more than"));
  EXPECT_TRUE(
      contains(refusal({.type = "linear", .total_num_steps = 10, .min_ratio = 2}), "min_ratio"));
  EXPECT_TRUE(contains(refusal({.type = "constant", .lr = -1}), "lr"));
  EXPECT_THROW(LRScheduler({.type = "constant"}).lr_at(-1), UsageError);
}
