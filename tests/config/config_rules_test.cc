// SPDX-License-Identifier: Apache-2.0
// Keys of one optimizer or schedule.
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"

namespace config_rules_test {

using namespace trireme;
using namespace trireme::testing;

TEST(config_config_rules, optimizers_and_schedules_take_their_own_keys) {
  for (auto text :
       {R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 1, "betas": [0.9, 0.99]}}})",
        R"({"optimizer": {"type": "lars", "params": {"trust_coefficient": 0.02, "no_adapt": []}}})",
        R"({"optimizer": {"type": "Lion", "params": {"betas": [0.95, 0.98]}}})",
        R"({"optimizer": {"type": "Adafactor", "params": {"beta2_decay": -0.5, "d": 2}}})",
        R"({"optimizer": {"type": "RMSprop", "params": {"alpha": 0.9, "momentum": 0.5}}})",
        R"({"optimizer": {"type": "Adagrad", "params": {"initial_accumulator_value": 0.1}}})",
        R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1,
            "cycle_momentum": false, "cycle_min_mom": 0.85}}})",
        R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_staircase": true}}})",
        R"({"scheduler": {"type": "WSD", "params": {"decay_num_steps": 100}}})",
        R"({"scheduler": {"type": "polynomial", "params": {"power": 2}}})",
        R"({"scheduler": {"type": "inverse_sqrt", "params": {"warmup_num_steps": 20}}})",
        R"({"scheduler": {"lr_scaling": "sqrt", "base_batch_size": 256}})"})
    EXPECT_EQ(error_of(text), "") << text;
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"optimizer": {"type": "Lamb", "params": {"momentum": 0.9}}})", "applies when"},
      {R"({"optimizer": {"type": "Lamb", "params": {"min_coeff": 11}}})", "is above"},
      {R"({"optimizer": {"type": "Lars", "params": {"trust_coefficient": 0}}})", "above 0"},
      {R"({"optimizer": {"type": "RMSprop", "params": {"alpha": 1}}})", "below 1"},
      {R"({"optimizer": {"type": "AdaMod", "params": {"beta3": 1}}})", "below 1"},
      {R"({"optimizer": {"type": "Adafactor", "params": {"eps": 1e-8}}})", "applies when"},
      {R"({"optimizer": {"type": "Adafactor", "params": {"beta2_decay": 0}}})", "must not be 0"},
      {R"({"optimizer": {"type": "SGD", "params": {"alpha": 0.9}}})", "applies when"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1}}})",
       "does not cycle momentum"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_momentum": false,
            "cycle_max_lr": 1}}})",
       "cycle_min_lr is required by the schedule"},
      {R"({"scheduler": {"type": "WSD"}})", "decay_num_steps is required by the schedule"},
      {R"({"scheduler": {"type": "polynomial", "params": {"power": 0}}})", "above 0"},
      {R"({"scheduler": {"lr_scaling": "linear"}})", "base_batch_size is required by the schedule"},
      {R"({"scheduler": {"base_batch_size": 256}})", "applies when"}};
  for (auto [text, part] : wrong)
    EXPECT_NE(error_of(text).find(part), std::string::npos) << text << error_of(text);
  auto c = config(R"({"optimizer": {"type": "Lion"}, "scheduler": {"type": "inverse_sqrt"}})");
  EXPECT_EQ(c.get_double_list("optimizer.params.betas"), (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(c.get_double("scheduler.params.min_lr_ratio"), 0);
  EXPECT_EQ(config(R"({"optimizer": {"type": "Lars"}})").get_double("optimizer.params.momentum"),
            0.9);
  EXPECT_EQ(config(R"({"optimizer": {"type": "Adagrad"}})").get_double("optimizer.params.eps"),
            1e-10);
  EXPECT_TRUE(config(R"({"optimizer": {"type": "Lamb"}})")
                  .get_string_list("optimizer.params.no_adapt")
                  .empty());
}

}  // namespace config_rules_test
