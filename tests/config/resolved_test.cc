// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/resolved.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::resolved_test {
namespace {

const char kText[] = R"({
  "model": {"type": "mlp", "inputs": 16, "hidden": [8, 8], "outputs": 4},
  "data": {"type": "dummy"},
  "train_micro_batch_size_per_gpu": 4,
  "training": {"steps": 6}
})";

TEST(config_resolved, values_keep_the_origins_that_they_had) {
  const Config config = Config::from_text("mine.json", kText, {"training.seed=7"});
  const Config again = load_resolved(config.to_json());
  EXPECT_EQ(again.hash(), config.hash());
  for (const char* path : {"training.steps", "training.seed", "model.hidden", "model.type",
                           "optimizer.type", "train_micro_batch_size_per_gpu"})
    EXPECT_EQ(again.origin(path), config.origin(path)) << path;
  EXPECT_EQ(again.origin("training.steps"), "mine.json:5:25");
  EXPECT_EQ(again.origin("training.seed"), "--set");
}

TEST(config_resolved, what_is_wrong_is_said_at_its_origin) {
  std::string text = Config::from_text("mine.json", kText).to_json();
  const std::string steps = "\"steps\": 6";
  text.replace(text.find(steps), steps.size(), "\"steps\": -6");
  try {
    load_resolved(text);
    FAIL() << "loaded";
  } catch (const UsageError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("mine.json:5:25: training.steps", 0), 0u) << e.what();
  }
}

TEST(config_resolved, a_text_without_origins_has_its_own) {
  const Config config = load_resolved(kText);
  EXPECT_EQ(config.get_int("training.steps"), 6);
  EXPECT_EQ(config.origin("training.steps"), "the resolved configuration:5:25");
}

}  // namespace
}  // namespace trireme::resolved_test
