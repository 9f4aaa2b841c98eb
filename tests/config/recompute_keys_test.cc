// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/config/config.h"
#include "trireme/config/keys.h"

namespace recompute_keys_test {

using namespace trireme;

namespace {

using trireme::testing::has;
std::string refusal(const std::string& text) {
  try {
    Config::from_text("c.json", text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}
}  // namespace

TEST(config_recompute_keys, ours_choose_the_blocks_and_default_to_none) {
  const Config none = Config::from_text("c.json", "{}");
  EXPECT_EQ(none.get_int("training.recompute_every"), 0);
  EXPECT_EQ(none.get_double("training.activation_memory_mb"), 0);
  const Config some = Config::from_text("c.json", R"({"training": {"recompute_every": 2}})");
  EXPECT_EQ(some.get_int("training.recompute_every"), 2);
}

TEST(config_recompute_keys, both_ways_of_choosing_are_one_too_many) {
  const std::string text =
      refusal(R"({"training": {"recompute_every": 1, "activation_memory_mb": 100}})");
  EXPECT_TRUE(has(text, "activation_memory_mb") && has(text, "recompute_every")) << text;
}

TEST(config_recompute_keys, a_model_without_blocks_refuses_them_by_name) {
  for (const char* model : {"mlp", "net"})
    for (const char* key : {"recompute_every", "activation_memory_mb"}) {
      const std::string text = refusal(std::string(R"({"model": {"type": ")") + model +
                                       R"("}, "training": {")" + key + R"(": 1}})");
      EXPECT_TRUE(has(text, key) && has(text, "applies when model.type is gpt")) << text;
    }
}

TEST(config_recompute_keys, deepspeeds_section_is_accepted_with_a_reason_for_each) {
  for (const char* name :
       {"partition_activations", "cpu_checkpointing", "contiguous_memory_optimization",
        "number_checkpoints", "synchronize_checkpoint_boundary", "profile"}) {
    const KeyInfo* key = find_key(std::string("activation_checkpointing.") + name);
    ASSERT_NE(key, nullptr) << name;
    EXPECT_EQ(key->status, KeyStatus::without_effect);
    EXPECT_FALSE(key->why.empty());
    EXPECT_EQ(refusal(std::string(R"({"activation_checkpointing": {")") + name + R"(": true}})"),
              "");
  }
  EXPECT_TRUE(has(refusal(R"({"activation_checkpointing": {"profil": true}})"), "profile"));
}

}  // namespace recompute_keys_test
