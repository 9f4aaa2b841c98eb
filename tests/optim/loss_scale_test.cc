// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/loss_scale.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace loss_scale_test {

using namespace trireme;

namespace {

// One letter a step: '.' finite, 'x' overflow. The scale after each; "stop" ends a line.
std::vector<std::string> scales(const LossScaleOptions& o, const std::string& steps) {
  std::vector<std::string> seen;
  LossScaleState s = first_loss_scale(o);
  for (char step : steps) {
    auto next = next_loss_scale(o, s, step == 'x');
    if (next.move == LossScaleMove::at_floor) {
      seen.push_back("stop");
      break;
    }
    s = next.state;
    seen.push_back(fmt::format("{}", s.scale));
  }
  return seen;
}

std::string joined(const std::vector<std::string>& v) {
  std::string all;
  for (const auto& s : v) all += (all.empty() ? "" : " ") + s;
  return all;
}

// DeepSpeed's rule in its own words, as an oracle: iterations since the last overflow, modulo the
// window.
struct Oracle {
  double scale;
  int64_t window, delayed_shift;
  bool consecutive;
  double min_scale;
  int64_t iteration = 0, last_overflow = -1, hysteresis = 0;
  bool stopped = false;
  void step(bool overflow) {
    if (overflow) {
      const bool lower = delayed_shift == 1 || hysteresis == 1;
      if (lower && scale == min_scale) stopped = true;
      if (lower)
        scale = scale / 2 > min_scale ? scale / 2 : min_scale;
      else
        --hysteresis;
      last_overflow = iteration;
    } else {
      if (consecutive) hysteresis = delayed_shift;
      if ((iteration - last_overflow) % window == 0) {
        if (!consecutive) hysteresis = delayed_shift;
        scale *= 2;
      }
    }
    ++iteration;
  }
};

}  // namespace

TEST(optim_loss_scale, the_table_of_moves) {
  struct Row {
    const char* what;
    LossScaleOptions options;
    const char* steps;
    const char* scales;
  };
  const Row rows[] = {
      {"grows after each window of good steps", deepspeed_loss_scale(0, 3, 3), ".......",
       "8 8 16 16 16 32 32"},
      {"hysteresis absorbs the first overflow, and begins the window again",
       deepspeed_loss_scale(0, 3, 3, 2), "..x...", "8 8 8 8 8 16"},
      {"then every overflow backs off until the next growth", deepspeed_loss_scale(0, 5, 3, 2),
       "xx.x..x...xx", "32 16 16 8 8 8 4 4 4 8 8 4"},
      {"consecutive_hysteresis: each good step restores it",
       deepspeed_loss_scale(0, 5, 100, 2, true), "x.x.x.xx", "32 32 32 32 32 32 32 16"},
      {"hysteresis 1 backs off at once", deepspeed_loss_scale(0, 4, 100, 1), "xxx", "8 4 2"},
      {"never below min_loss_scale, and an overflow there stops",
       deepspeed_loss_scale(0, 3, 100, 1, false, 3), "xx.x", "4 3 3 stop"},
      {"hysteresis is used up before the stop", deepspeed_loss_scale(0, 0, 100, 3), "xxx",
       "1 1 stop"},
      {"a scale that is given stays", deepspeed_loss_scale(128, 16, 4), "....x..xxx.",
       "128 128 128 128 128 128 128 128 128 128 128"},
      {"and stops after a window of overflows", deepspeed_loss_scale(128, 16, 3), "xx.xxx",
       "128 128 128 128 128 stop"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(joined(scales(row.options, row.steps)), row.scales) << row.what;
}

TEST(optim_loss_scale, equals_deepspeeds_rule_on_every_sequence_of_ten_steps) {
  for (int64_t window : {1, 2, 3, 5})
    for (int64_t hysteresis : {1, 2, 3})
      for (bool consecutive : {false, true})
        for (double floor : {1.0, 8.0})
          for (unsigned bits = 0; bits < 1024; ++bits) {
            const auto o = deepspeed_loss_scale(0, 4, window, hysteresis, consecutive, floor);
            LossScaleState s = first_loss_scale(o);
            Oracle oracle{16, window, hysteresis, consecutive, floor};
            oracle.hysteresis = hysteresis;
            for (int i = 0; i < 10; ++i) {
              const bool overflow = bits >> i & 1;
              const auto next = next_loss_scale(o, s, overflow);
              oracle.step(overflow);
              ASSERT_EQ(next.move == LossScaleMove::at_floor, oracle.stopped) << bits;
              if (oracle.stopped) break;
              s = next.state;
              ASSERT_EQ(s.scale, oracle.scale) << bits << " at " << i;
            }
          }
}

TEST(optim_loss_scale, the_defaults_are_deepspeeds) {
  const auto o = deepspeed_loss_scale();
  EXPECT_EQ(o.initial, 65536);
  EXPECT_EQ(o.window, 1000);
  EXPECT_EQ(o.hysteresis, 2);
  EXPECT_FALSE(o.consecutive_hysteresis);
  EXPECT_EQ(o.min_scale, 1);
  EXPECT_TRUE(o.dynamic);
  EXPECT_FALSE(deepspeed_loss_scale(1).dynamic);
}

TEST(optim_loss_scale, never_outgrows_float32) {
  auto o = deepspeed_loss_scale(0, 127, 1);
  auto next = next_loss_scale(o, first_loss_scale(o), false);
  EXPECT_EQ(next.state.scale, 0x1p127);
  EXPECT_EQ(next.move, LossScaleMove::stayed);
}

TEST(optim_loss_scale, the_state_is_as_before_at_the_floor) {
  auto o = deepspeed_loss_scale(0, 0, 10, 1);
  auto s = next_loss_scale(o, first_loss_scale(o), false).state;
  auto next = next_loss_scale(o, s, true);
  EXPECT_EQ(next.move, LossScaleMove::at_floor);
  EXPECT_EQ(next.state.good_steps, 1);
  EXPECT_EQ(next.state.skipped, 0);
}

TEST(optim_loss_scale, options_that_make_no_sense_are_refused_by_key) {
  auto refused = [](LossScaleOptions o) -> std::string {
    try {
      check_loss_scale(o);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  auto has = [&](LossScaleOptions o, const char* key) {
    EXPECT_NE(refused(o).find(key), std::string::npos) << refused(o);
  };
  has(deepspeed_loss_scale(-1), "loss_scale");
  has(deepspeed_loss_scale(0, 500), "initial_scale_power");
  has(deepspeed_loss_scale(0, 16, 0), "loss_scale_window");
  has(deepspeed_loss_scale(0, 16, 10, 0), "hysteresis");
  has(deepspeed_loss_scale(0, 16, 10, 2, false, 0), "min_loss_scale");
  has(deepspeed_loss_scale(0, 2, 10, 2, false, 8), "min_loss_scale");
  LossScaleOptions o;
  o.growth = 1;
  has(o, "growth");
  o = {};
  o.backoff = 1;
  has(o, "back-off");
  EXPECT_EQ(refused({}), "");
}

}  // namespace loss_scale_test
