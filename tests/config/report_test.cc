// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace report_test {

using namespace trireme;

namespace {

using trireme::testing::has;

CheckReport check_of(const std::string& text, int world = 0,
                     const std::vector<std::string>& sets = {}) {
  PrivateFolder folder;
  write_file_atomic(folder / "ds.json", text);
  return check_config(ConfigInputs::from({folder / "ds.json"}, sets), world);
}

}  // namespace

TEST(config_report, says_of_each_key_what_becomes_of_it) {
  auto report = check_of(R"({"train_batch_size": 8, "wall_clock_breakdown": true,
                             "elasticity": {"enabled": true}, "stteps": 1})");
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.errors(), 2);
  auto text = check_text(report);
  EXPECT_TRUE(has(text, "  supported                train_batch_size "));
  EXPECT_TRUE(has(text, "  accepted without effect  wall_clock_breakdown "));
  EXPECT_TRUE(has(text, "  refused                  elasticity.enabled "));
  EXPECT_TRUE(has(text, "  wrong                    stteps "));
  EXPECT_TRUE(has(text, "give the batch sizes"));
  EXPECT_TRUE(has(text, "\n2 errors\n"));
  EXPECT_TRUE(has(report.first_error(), "ds.json:2:"));
}

TEST(config_report, tells_deepspeeds_surprises) {
  auto text = check_text(check_of(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5}}})"));
  EXPECT_TRUE(has(text, "Adam is AdamW"));
  EXPECT_TRUE(has(text, "gradient_clipping is 1.0"));
  EXPECT_TRUE(has(text, "training.drop_last is true"));
  EXPECT_TRUE(has(text, "WarmupLR warms up logarithmically"));
  EXPECT_TRUE(has(text, "rises to scheduler.params.warmup_max_lr 0.5"));
  EXPECT_TRUE(has(text, "\nok\n"));
  auto spoken = check_text(check_of(
      R"({"train_batch_size": 8, "gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0}},
          "dataloader_drop_last": true, "training": {"steps": 2000},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 10}}})"));
  EXPECT_FALSE(has(spoken, "note:")) << spoken;
}

TEST(config_report, works_out_the_batches) {
  EXPECT_TRUE(has(check_text(check_of(R"({"train_batch_size": 8})", 2)),
                  "batch: 8 = 4 per rank × 1 accumulated × 2 ranks"));
  EXPECT_TRUE(has(
      check_text(check_of(R"({"train_micro_batch_size_per_gpu": 2, "parallelism": {"tp": 2}})", 6)),
      "batch: 6 = 2 per rank × 1 accumulated × 3 data-parallel ranks"));
  EXPECT_EQ(check_of(R"({"train_batch_size": 12, "parallelism": {"dp": 3, "tp": 2, "pp": 2}})")
                .batches->dp,
            3);
  auto three =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4})";
  EXPECT_EQ(check_of(three).batches->dp, 2);  // the ranks for which the numbers agree
  EXPECT_FALSE(check_of(three, 3).ok());
  auto odd = check_of(R"({"train_batch_size": 7})", 2);
  EXPECT_TRUE(has(odd.first_error(), "is not divisible by 2 ranks"));
  EXPECT_FALSE(check_of("{}").ok());
  EXPECT_EQ(check_of(R"({"train_batch_size": "many"})").errors(), 1);  // not also a missing batch
}

TEST(config_report, json_says_the_same) {
  auto json = nlohmann::json::parse(check_json(check_of(
      R"({"train_batch_size": 8, "dump_state": true, "elasticity": {"enabled": true}})", 2)));
  EXPECT_EQ(json["ok"], false);
  ASSERT_EQ(json["keys"].size(), 3u);
  EXPECT_EQ(json["keys"][0]["key"], "train_batch_size");
  EXPECT_EQ(json["keys"][0]["value"], 8);
  EXPECT_EQ(json["keys"][0]["status"], "supported");
  EXPECT_EQ(json["keys"][0]["deepspeed"], true);
  EXPECT_EQ(json["keys"][1]["status"], "accepted without effect");
  EXPECT_EQ(json["keys"][2]["status"], "refused");
  EXPECT_EQ(json["errors"].size(), 1u);
  EXPECT_EQ(json["batches"]["train_micro_batch_size_per_gpu"], 4);
}

TEST(config_report, show_lists_every_value_with_its_origin) {
  auto c = Config::from_text("g.json", R"({"training": {"steps": 7}, "train_batch_size": 8})");
  auto text = show_text(c, c.resolve_batches(2));
  EXPECT_TRUE(has(text, "training.steps "));
  EXPECT_TRUE(has(text, " g.json:1:24\n"));
  EXPECT_TRUE(has(text, "training.seed "));
  EXPECT_TRUE(has(text, " default\n"));
  EXPECT_TRUE(has(text, "8 = 4 per rank"));
  EXPECT_TRUE(has(text, "hash: " + c.hash()));
  EXPECT_FALSE(has(text, "model.hidden"));
}

}  // namespace report_test
