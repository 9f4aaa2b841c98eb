// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "trireme/config/config_loader.h"

namespace keys_test {

using namespace trireme;

TEST(config_keys, every_path_stands_once) {
  std::set<std::string> seen;
  for (const auto& key : all_keys()) EXPECT_TRUE(seen.insert(key.path).second) << key.path;
  for (const auto& key : all_keys()) EXPECT_FALSE(seen.contains(key.path + ".*")) << key.path;
}

TEST(config_keys, defaults_keep_their_own_rules) {
  for (const auto& key : all_keys()) {
    if (key.default_json.empty()) continue;
    Value out;
    EXPECT_EQ(normalise(key, read_json("t", key.default_json), &out), "") << key.path;
    EXPECT_EQ(read_json("t", key.default_json), out) << key.path << ": not in its final form";
  }
}

TEST(config_keys, rows_are_complete) {
  for (const auto& key : all_keys()) {
    if (!key.alias_of.empty()) {
      auto* target = find_key(key.alias_of);
      ASSERT_NE(target, nullptr) << key.path;
      EXPECT_TRUE(target->alias_of.empty());
      if (key.alias_true.empty()) {
        EXPECT_EQ(target->type, key.type) << key.path;
      } else {
        Value out;
        EXPECT_EQ(key.type, KeyType::boolean) << key.path;
        EXPECT_EQ(normalise(*target, read_json("t", key.alias_true), &out), "") << key.path;
      }
      if (!key.harmless.empty()) {
        Value out;
        EXPECT_EQ(normalise(key, read_json("t", key.harmless), &out), "") << key.path;
      }
      continue;
    }
    if (key.status == KeyStatus::supported) {
      EXPECT_FALSE(key.help.empty()) << key.path;
      EXPECT_NE(key.type, KeyType::any) << key.path;
    } else {
      EXPECT_FALSE(key.why.empty()) << key.path;
      EXPECT_TRUE(key.default_json.empty()) << key.path;
    }
    EXPECT_EQ(key.refused_choices.empty(), key.status != KeyStatus::supported || key.why.empty())
        << key.path;
    if (!key.harmless.empty()) {
      EXPECT_EQ(key.status, KeyStatus::refused);
      Value out;
      EXPECT_EQ(normalise(key, read_json("t", key.harmless), &out), "") << key.path;
    }
  }
}

TEST(config_keys, conditions_name_real_keys_and_choices) {
  for (const auto& key : all_keys()) {
    EXPECT_FALSE(key.idle && key.when.empty()) << key.path;
    for (const auto& condition : split_words(key.when, '|')) {
      auto equals = condition.find('=');
      ASSERT_NE(equals, std::string::npos) << key.path;
      auto* selector = find_key(condition.substr(0, equals));
      ASSERT_NE(selector, nullptr) << key.path;
      EXPECT_FALSE(selector->default_json.empty()) << key.path;
      std::string words = selector->type == KeyType::boolean ? "true false" : selector->choices;
      if (selector->type == KeyType::integer)
        for (double n = selector->min; n <= selector->max && n < 100; ++n)
          words += " " + std::to_string(static_cast<int>(n));
      auto choices = split_words(words);
      for (const auto& wanted : split_words(condition.substr(equals + 1), ','))
        EXPECT_NE(std::find(choices.begin(), choices.end(), wanted), choices.end())
            << key.path << " " << wanted;
    }
  }
}

TEST(config_keys, families_answer_for_what_is_below) {
  ASSERT_NE(find_key("wandb.project"), nullptr);
  EXPECT_EQ(find_key("wandb.project")->path, "wandb.*");
  EXPECT_EQ(find_key("autotuning.enabled")->status, KeyStatus::refused);
  EXPECT_EQ(find_key("autotuning.fast")->status, KeyStatus::without_effect);
  EXPECT_EQ(find_key("wandb"), nullptr);
  EXPECT_TRUE(is_section("wandb"));
  EXPECT_TRUE(is_section("optimizer.params"));
  EXPECT_FALSE(is_section("optimizer.type"));
  EXPECT_FALSE(is_section("optimizr"));
}

TEST(config_keys, the_nearest_key_is_what_was_meant) {
  EXPECT_EQ(nearest_key("training.stepz"), "training.steps");
  EXPECT_EQ(nearest_key("trainig.steps"), "training.steps");
  EXPECT_EQ(nearest_key("train_batchsize"), "train_batch_size");
  EXPECT_EQ(nearest_key("lr"), "optimizer.params.lr");
  EXPECT_EQ(nearest_key("optimizer.lr"), "optimizer.params.lr");
  EXPECT_EQ(nearest_key("optimzer"), "optimizer");
  EXPECT_EQ(nearest_key("zero_optimization.stage3_param_persitance_threshold"),
            "zero_optimization.stage3_param_persistence_threshold");
  EXPECT_FALSE(nearest_key("").empty());
  EXPECT_FALSE(nearest_key(std::string(100'000, 'x')).empty());
}

TEST(config_keys, edit_distance_counts_changes) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
}

TEST(config_keys, deepspeeds_keys_keep_its_defaults) {
  EXPECT_EQ(find_key("gradient_clipping")->default_json, "1.0");
  EXPECT_EQ(find_key("steps_per_print")->default_json, "10");
  EXPECT_EQ(find_key("optimizer.params.adam_w_mode")->default_json, "true");
  EXPECT_EQ(find_key("scheduler.params.warmup_type")->default_json, "\"log\"");
  EXPECT_EQ(find_key("training.seed")->default_json, "42");
}

}  // namespace keys_test
