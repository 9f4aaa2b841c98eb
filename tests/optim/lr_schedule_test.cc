// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/schedule/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trireme/base/error.h"

namespace lr_schedule_test {

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

TEST(optim_lr_schedule, polynomial_falls_by_its_power_and_stays_at_the_end) {
  LRScheduler s({.type = "polynomial",
                 .lr = 2.0,
                 .warmup_num_steps = 10,
                 .total_num_steps = 110,
                 .min_ratio = 0.1,
                 .power = 2.0});
  EXPECT_DOUBLE_EQ(s.lr_at(0), 0.2);
  EXPECT_DOUBLE_EQ(s.lr_at(9), 2.0);
  EXPECT_DOUBLE_EQ(s.lr_at(10), 2.0);
  for (int64_t step = 11; step <= 110; ++step)
    EXPECT_NEAR(s.lr_at(step), 2 * (0.1 + 0.9 * std::pow(1 - (step - 10) / 100.0, 2)), 1e-12);
  EXPECT_DOUBLE_EQ(s.lr_at(110), 0.2);
  EXPECT_DOUBLE_EQ(s.lr_at(9999), 0.2);
  LRScheduler straight({.type = "polynomial", .lr = 1, .total_num_steps = 4});
  EXPECT_DOUBLE_EQ(straight.lr_at(1), 0.75);
}

TEST(optim_lr_schedule, inverse_sqrt_meets_its_warm_up_and_its_floor) {
  LRScheduler s({.type = "inverse_sqrt", .lr = 1.0, .warmup_num_steps = 16, .min_ratio = 0.125});
  EXPECT_DOUBLE_EQ(s.lr_at(0), 1.0 / 16);
  EXPECT_DOUBLE_EQ(s.lr_at(15), 1.0);
  EXPECT_DOUBLE_EQ(s.lr_at(16), std::sqrt(16.0 / 17));
  EXPECT_DOUBLE_EQ(s.lr_at(63), 0.5);
  EXPECT_DOUBLE_EQ(s.lr_at(1023), 0.125);
  EXPECT_DOUBLE_EQ(s.lr_at(100'000), 0.125);
  LRScheduler bare({.type = "inverse_sqrt", .lr = 3.0});
  EXPECT_DOUBLE_EQ(bare.lr_at(0), 3.0);
  EXPECT_DOUBLE_EQ(bare.lr_at(8), 1.0);
}

TEST(optim_lr_schedule, wsd_warms_up_stays_and_decays_in_its_shape) {
  const std::pair<const char*, double (*)(double)> shapes[] = {
      {"linear", [](double y) { return 1 - y; }},
      {"cosine", [](double y) { return (1 + std::cos(M_PI * y)) / 2; }},
      {"exponential", [](double y) { return 2 * std::pow(0.5, y) - 1; }},
      {"minus_sqrt", [](double y) { return 1 - std::sqrt(y); }}};
  for (const auto& [type, f] : shapes) {
    LRScheduler s({.type = "WSD",
                   .lr = 2.0,
                   .warmup_num_steps = 5,
                   .total_num_steps = 50,
                   .min_ratio = 0.1,
                   .decay_num_steps = 20,
                   .decay_type = type});
    EXPECT_DOUBLE_EQ(s.lr_at(0), 0.4);
    for (int64_t step = 4; step <= 30; ++step) EXPECT_DOUBLE_EQ(s.lr_at(step), 2.0) << type;
    for (int64_t step = 31; step <= 50; ++step)
      EXPECT_NEAR(s.lr_at(step), 2 * (0.1 + 0.9 * f((step - 30) / 20.0)), 1e-12) << type << step;
    EXPECT_NEAR(s.lr_at(50), 0.2, 1e-12) << type;
    EXPECT_NEAR(s.lr_at(500), 0.2, 1e-12) << type;
  }
  EXPECT_DOUBLE_EQ(
      LRScheduler({.type = "WSD", .lr = 1, .total_num_steps = 10, .decay_num_steps = 10}).lr_at(5),
      0.5)
      << "linear unless told";
}

// Against DeepSpeed's own words: its scheduler's counter is one behind the optimizer's step.
TEST(optim_lr_schedule, one_cycle_goes_up_and_down_and_then_decays_as_deepspeeds) {
  auto deepspeed = [](int64_t step, double low, double high, double a, double b, double rate,
                      double decay_size) {
    const int64_t last_batch_iteration = step - 1;
    if (last_batch_iteration < a + b) {
      const double total = a + b, ratio = a / total, now = static_cast<double>(step);
      const double cycle = std::floor(1 + now / total), x = 1 + now / total - cycle;
      const double scale = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
      return low + (high - low) * scale;
    }
    if (rate == 0) return low;
    return low /
           (1 + rate * (static_cast<double>(last_batch_iteration) - (a + b) + 1) / decay_size);
  };
  LRScheduler s({.type = "OneCycle",
                 .cycle_min_lr = 0.01,
                 .cycle_max_lr = 0.11,
                 .decay_lr_rate = 0.5,
                 .cycle_first_step_size = 10,
                 .cycle_second_step_size = 30,
                 .decay_step_size = 4});
  for (int64_t step = 0; step < 100; ++step)
    EXPECT_NEAR(s.lr_at(step), deepspeed(step, 0.01, 0.11, 10, 30, 0.5, 4), 1e-15) << step;
  EXPECT_DOUBLE_EQ(s.lr_at(0), 0.01);
  EXPECT_DOUBLE_EQ(s.lr_at(10), 0.11);
  EXPECT_DOUBLE_EQ(s.lr_at(25), 0.06);
  EXPECT_DOUBLE_EQ(s.lr_at(40), 0.01);
  EXPECT_DOUBLE_EQ(s.lr_at(44), 0.01 / 1.5);
  LRScheduler plain({.type = "OneCycle", .cycle_min_lr = 0, .cycle_max_lr = 1});
  EXPECT_DOUBLE_EQ(plain.lr_at(2000), 1) << "2000 steps up";
  EXPECT_DOUBLE_EQ(plain.lr_at(3000), 0.5) << "as many down";
  EXPECT_DOUBLE_EQ(plain.lr_at(50'000), 0) << "and no decay";
}

TEST(optim_lr_schedule, lr_range_test_rises_steadily_or_in_stairs) {
  LRScheduler s({.type = "LRRangeTest",
                 .lr_range_test_min_lr = 0.01,
                 .lr_range_test_step_size = 10,
                 .lr_range_test_step_rate = 2.0});
  LRScheduler stairs({.type = "LRRangeTest",
                      .lr_range_test_min_lr = 0.01,
                      .lr_range_test_step_size = 10,
                      .lr_range_test_step_rate = 2.0,
                      .lr_range_test_staircase = true});
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_NEAR(s.lr_at(step), 0.01 * (1 + 2 * step / 10.0), 1e-15);
    EXPECT_NEAR(stairs.lr_at(step), 0.01 * (1 + 2 * static_cast<double>(step / 10)), 1e-15);
  }
  LRScheduler by_default({.type = "LRRangeTest"});
  EXPECT_DOUBLE_EQ(by_default.lr_at(0), 0.001);
  EXPECT_DOUBLE_EQ(by_default.lr_at(2000), 0.002);
}

TEST(optim_lr_schedule, a_scheduler_made_anew_in_the_middle_goes_on_as_the_first) {
  const ScheduleOptions all[] = {
      {.type = "constant", .warmup_num_steps = 7},
      {.type = "linear", .total_num_steps = 60},
      {.type = "cosine", .total_num_steps = 60},
      {.type = "polynomial", .total_num_steps = 60, .power = 3.0},
      {.type = "inverse_sqrt", .warmup_num_steps = 7},
      {.type = "WSD", .total_num_steps = 60, .decay_num_steps = 20},
      {.type = "WarmupLR", .warmup_num_steps = 40},
      {.type = "WarmupDecayLR", .warmup_num_steps = 20, .total_num_steps = 60},
      {.type = "WarmupCosineLR", .warmup_num_steps = 20, .total_num_steps = 60},
      {.type = "OneCycle",
       .cycle_min_lr = 0.1,
       .cycle_max_lr = 1.0,
       .decay_lr_rate = 0.1,
       .cycle_first_step_size = 20,
       .decay_step_size = 5},
      {.type = "LRRangeTest", .lr_range_test_step_size = 7}};
  for (const auto& options : all) {
    LRScheduler first(options);
    std::vector<double> whole;
    for (int64_t step = 0; step < 80; ++step) whole.push_back(first.lr_at(step));
    LRScheduler resumed(options);
    for (int64_t step = 33; step < 80; ++step)
      EXPECT_EQ(resumed.lr_at(step), whole[static_cast<size_t>(step)]) << options.type;
  }
}

TEST(optim_lr_schedule, scale_multiplies_every_rate) {
  EXPECT_DOUBLE_EQ(LRScheduler({.type = "constant", .lr = 0.5, .scale = 4}).lr_at(9), 2);
  EXPECT_DOUBLE_EQ(LRScheduler({.type = "LRRangeTest", .scale = 3}).lr_at(2000), 0.006);
  EXPECT_DOUBLE_EQ(LRScheduler({.type = "WarmupLR", .scale = 2, .warmup_max_lr = 0.1}).lr_at(5000),
                   0.2);
  EXPECT_TRUE(contains(refusal({.scale = 0}), "scale"));
}

TEST(optim_lr_schedule, large_batches_scale_the_rate_linearly_or_by_the_root) {
  EXPECT_EQ(large_batch_scale("none", 8192, 256), 1);
  EXPECT_EQ(large_batch_scale("linear", 8192, 256), 32);
  EXPECT_EQ(large_batch_scale("linear", 64, 256), 0.25);
  EXPECT_DOUBLE_EQ(large_batch_scale("sqrt", 4096, 256), 4);
  EXPECT_THROW(large_batch_scale("cube", 1, 1), UsageError);
  EXPECT_THROW(large_batch_scale("linear", 64, 0), UsageError);
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
  EXPECT_TRUE(
      contains(refusal({.type = "polynomial", .total_num_steps = 9, .power = 0.0}), "power is 0"));
  EXPECT_TRUE(contains(refusal({.type = "inverse_sqrt", .total_num_steps = 9}), "does not use"));
  EXPECT_TRUE(contains(refusal({.type = "WSD", .total_num_steps = 9}), "decay_num_steps"));
  EXPECT_TRUE(contains(
      refusal({.type = "WSD", .warmup_num_steps = 5, .total_num_steps = 9, .decay_num_steps = 5}),
      "more than total_num_steps (9)"));
  EXPECT_TRUE(contains(
      refusal({.type = "WSD", .total_num_steps = 9, .decay_num_steps = 5, .decay_type = "log"}),
      "'log'"));
  EXPECT_TRUE(contains(refusal({.type = "OneCycle", .cycle_min_lr = 1.0}), "cycle_max_lr"));
  EXPECT_TRUE(contains(refusal({.type = "OneCycle", .cycle_min_lr = 2.0, .cycle_max_lr = 1.0}),
                       "above cycle_max_lr"));
  EXPECT_TRUE(contains(
      refusal({.type = "OneCycle", .cycle_min_lr = 0.0, .cycle_max_lr = 1.0, .decay_lr_rate = 0.5}),
      "decay_step_size"));
  EXPECT_TRUE(
      contains(refusal({.type = "LRRangeTest", .lr_range_test_step_size = 0}), "1 or more"));
  EXPECT_TRUE(contains(refusal({.type = "LRRangeTest", .warmup_num_steps = 3}), "does not use"));
}

}  // namespace lr_schedule_test
