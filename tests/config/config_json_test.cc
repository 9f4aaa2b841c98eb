// SPDX-License-Identifier: Apache-2.0
// The resolved file and its hash.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/config/small_configs.h"

namespace config_json_test {

using namespace trireme;
using namespace trireme::testing;

TEST(config_config_json, the_resolved_file_loads_again_to_the_same_values) {
  for (
      auto text :
      {R"({})",
       R"({"model": {"type": "mlp", "hidden": [8, 9]}, "optimizer": {"type": "SGD", "params": {"momentum": 0.9}}})",
       R"({"scheduler": {"type": "WarmupLR"}, "fp16": {"enabled": false}, "wandb": {"a": {"b": [1.5, "é"]}}})",
       R"({"training": {"epochs": 3, "reproducible": true, "leaves": 8}, "data": {"type": "dummy"}})",
       R"({"scheduler": {"type": "cosine", "params": {"total_num_steps": 0}}, "generate": {"prompt": "a\n\"b"}})"}) {
    auto c = config(text, {"train_batch_size=64"});
    auto batches = c.resolve_batches(2);
    auto dumped = c.to_json(&batches);
    auto again = Config::from_text("config.json", dumped);
    EXPECT_EQ(again.hash(), c.hash()) << dumped;
    EXPECT_EQ(again.resolve_batches(4).train, 64);  // what was derived for 2 ranks does not bind 4
    auto third = Config::from_text("config.json", again.to_json(&batches));
    EXPECT_EQ(third.to_json(&batches), again.to_json(&batches));
    auto json = nlohmann::json::parse(dumped);
    EXPECT_EQ(json["_origins"]["train_batch_size"], "--set");
    EXPECT_EQ(json["_origins"]["training.seed"], "default");
    EXPECT_EQ(json["_derived"]["data_parallel_ranks"], 2);
  }
}

TEST(config_config_json, the_resolved_file_can_be_overridden) {
  auto dumped =
      config(R"({"model": {"layers": 2}, "train_micro_batch_size_per_gpu": 4})").to_json();
  auto c = Config::from_text("config.json", dumped, {"model.type=net", "optimizer.type=SGD"});
  EXPECT_EQ(c.get_string("data.type"), "digits");
  EXPECT_EQ(
      Config::from_text("config.json", dumped, {"training.epochs=2"}).get_int("training.steps"), 0);
}

TEST(config_config_json, the_hash_is_of_values_and_not_of_where_they_come_from) {
  auto c = config(R"({"training": {"steps": 50}})");
  EXPECT_EQ(c.hash().size(), 16u);
  EXPECT_EQ(config("{\n\"training.steps\": 5e1}").hash(), c.hash());
  EXPECT_EQ(config("{}", {"training.steps=50"}).hash(), c.hash());
  EXPECT_EQ(config(R"({"training": {"steps": 50, "seed": 42}})").hash(),
            c.hash());  // the default, spoken
  EXPECT_NE(config(R"({"training": {"steps": 51}})").hash(), c.hash());
  EXPECT_NE(config(R"({"training": {"steps": 50}, "train_batch_size": 4})").hash(), c.hash());
}

}  // namespace config_json_test
