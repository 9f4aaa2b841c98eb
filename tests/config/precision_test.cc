// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's and Apex's keys of mixed precision: read with their defaults, refused where they
// contradict each other.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/config.h"

namespace precision_test {

using namespace trireme;

namespace {

std::string error_of(const std::string& text) {
  try {
    Config::from_text("c.json", text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(config_precision, sections_have_deepspeeds_defaults) {
  const Config c = Config::from_text("c.json", R"({"fp16": {"enabled": true}})");
  EXPECT_TRUE(c.get_bool("fp16.enabled"));
  EXPECT_EQ(c.get_double("fp16.loss_scale"), 0);
  EXPECT_EQ(c.get_int("fp16.initial_scale_power"), 16);
  EXPECT_EQ(c.get_int("fp16.loss_scale_window"), 1000);
  EXPECT_EQ(c.get_int("fp16.hysteresis"), 2);
  EXPECT_FALSE(c.get_bool("fp16.consecutive_hysteresis"));
  EXPECT_EQ(c.get_double("fp16.min_loss_scale"), 1);
  EXPECT_FALSE(c.get_bool("bf16.enabled"));
  EXPECT_EQ(c.get_string("amp.opt_level"), "O1");
  EXPECT_EQ(c.get_string("torch_autocast.dtype"), "bfloat16");
  EXPECT_FALSE(c.has("communication_data_type"));
}

TEST(config_precision, other_spellings_are_read) {
  EXPECT_TRUE(
      Config::from_text("c.json", R"({"bfloat16": {"enabled": true}})").get_bool("bf16.enabled"));
  EXPECT_EQ(Config::from_text("c.json", R"({"amp": {"enabled": true, "opt_level": "o2"}})")
                .get_string("amp.opt_level"),
            "O2");
  for (auto text :
       {R"({"fp16": {"enabled": "auto", "loss_scale": 0, "auto_cast": true}})",
        R"({"fp16": {"enabled": true, "fp16_master_weights_and_grads": false}})",
        R"({"fp16": {"enabled": false, "loss_scale": 128, "hysteresis": 2}})",
        R"({"bf16": {"enabled": true, "check_grad_overflow": true}})",
        R"({"bf16": {"enabled": true}, "communication_data_type": "fp32"})",
        R"({"fp16": {"enabled": true, "min_loss_scale": 1e-3}})",
        R"({"fp16": {"enabled": true, "initial_scale_power": 100, "min_loss_scale": 1e30}})",
        R"({"amp": {"enabled": true, "opt_level": "O2"}, "fp16": {"emulate": true}})"})
    EXPECT_EQ(error_of(text), "") << text;
}

TEST(config_precision, what_contradicts_is_refused_in_one_sentence) {
  EXPECT_EQ(error_of(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"),
            "c.json:1:49: bf16.enabled is true, and so is fp16.enabled (c.json:1:22): enable only "
            "one of fp16, bf16, amp and torch_autocast");
  struct Row {
    const char* text;
    const char* part;
  };
  const Row rows[] = {
      {R"({"fp16": {"enabled": true}, "amp": {"enabled": true}})", "amp.enabled is true, and so"},
      {R"({"bf16": {"enabled": true}, "torch_autocast": {"enabled": true}})",
       "torch_autocast.enabled is true, and so is bf16.enabled"},
      {R"({"fp16": {"emulate": true}})", "no parameters are float16"},
      {R"({"fp16": {"emulate": true}, "bf16": {"enabled": true}})", "no parameters are float16"},
      {R"({"fp16": {"emulate": true}, "amp": {"enabled": true, "opt_level": "O1"}})",
       "no parameters are float16"},
      {R"({"fp16": {"emulate": true}, "amp": {"enabled": true, "opt_level": "O2", "dtype": "bf16"}})",
       "no parameters are float16"},
      {R"({"fp16": {"enabled": true, "initial_scale_power": 4, "min_loss_scale": 32}})",
       "fp16.min_loss_scale is above the initial scale"},
      {R"({"fp16": {"enabled": true}, "communication_data_type": "bf16"})",
       "communication_data_type is bf16 and gradients are fp16: set it to fp16 or fp32"},
      {R"({"bf16": {"enabled": true}, "training": {"reproducible": true}})",
       "training.reproducible is true, and bf16.enabled"},
      {R"({"fp16": {"enabled": true}, "training": {"reproducible": true}})", "and fp16.enabled"},
      {R"({"amp": {"enabled": true, "opt_level": "O3"}, "training": {"reproducible": true}})",
       "and amp.opt_level"},
      {R"({"communication_data_type": "bf16", "training": {"reproducible": true}})",
       "and communication_data_type"},
      {R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})",
       "data_types.grad_accum_dtype is fp32, and gradients are kept and added in bf16"},
      {R"({"fp16": {"hysteresis": 0}})", "hysteresis"},
      {R"({"amp": {"opt_level": "O4"}})", "O4"},
      {R"({"communication_data_type": "int8"})", "communication_data_type"},
  };
  for (const auto& row : rows)
    EXPECT_NE(error_of(row.text).find(row.part), std::string::npos) << row.text << "\n"
                                                                    << error_of(row.text);
}

TEST(config_precision, reproducible_takes_autocast) {
  EXPECT_EQ(
      error_of(R"({"torch_autocast": {"enabled": true}, "training": {"reproducible": true}})"), "");
  EXPECT_EQ(error_of(R"({"amp": {"enabled": true}, "training": {"reproducible": true}})"), "");
}

}  // namespace precision_test
