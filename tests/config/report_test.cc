// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

using namespace trireme;

namespace {

CheckReport check_of(const std::string& text, int world = 0,
                     const std::vector<std::string>& sets = {}) {
  PrivateFolder folder;
  write_file_atomic(folder / "ds.json", text);
  return check_config(ConfigInputs::from({folder / "ds.json"}, sets), world);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(config_report, says_of_each_key_what_becomes_of_it) {
  auto report = check_of(R"({"train_batch_size": 8, "wall_clock_breakdown": true,
                             "zero_optimization": {"stage": 2}, "stteps": 1})");
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.errors(), 2);
  auto text = check_text(report);
  EXPECT_TRUE(has(text, "  supported                train_batch_size "));
  EXPECT_TRUE(has(text, "  accepted without effect  wall_clock_breakdown "));
  EXPECT_TRUE(has(text, "  refused                  zero_optimization.stage "));
  EXPECT_TRUE(has(text, "  wrong                    stteps "));
  EXPECT_TRUE(has(text, "ZeRO arrives with sharding"));
  EXPECT_TRUE(has(text, "\n2 errors\n"));
  EXPECT_TRUE(has(report.first_error(), "ds.json:2:"));
}

TEST(config_report, tells_deepspeeds_surprises) {
  auto text = check_text(check_of(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5}}})"));
  EXPECT_TRUE(has(text, "Adam is AdamW"));
  EXPECT_TRUE(has(text, "gradient_clipping is 1.0"));
  EXPECT_TRUE(has(text, "WarmupLR warms up logarithmically"));
  EXPECT_TRUE(has(text, "rises to scheduler.params.warmup_max_lr 0.5"));
  EXPECT_TRUE(has(text, "\nok\n"));
  auto spoken = check_text(check_of(
      R"({"train_batch_size": 8, "gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0}},
          "training": {"steps": 2000},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 10}}})"));
  EXPECT_FALSE(has(spoken, "note:")) << spoken;
}

TEST(config_report, works_out_the_batches) {
  EXPECT_TRUE(has(check_text(check_of(R"({"train_batch_size": 8})", 2)),
                  "batch: 8 = 4 per rank × 1 accumulated × 2 ranks"));
  auto three =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4})";
  EXPECT_EQ(check_of(three).batches->dp, 2);  // the ranks for which the numbers agree
  EXPECT_FALSE(check_of(three, 3).ok());
  auto odd = check_of(R"({"train_batch_size": 7})", 2);
  EXPECT_TRUE(has(odd.first_error(), "does not divide by 2 ranks"));
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

// The shapes of ds_config.json that people have: read to the end, with a verdict for every key.
TEST(config_report, gives_a_verdict_on_real_deepspeed_files) {
  auto report = check_of(R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
             "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true, "contiguous_gradients": true,
      "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
      "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 1e5,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false })");
  for (const auto& key : report.inspection.keys) {
    EXPECT_NE(key.verdict, KeyReport::Verdict::wrong) << key.path << " " << key.why;
    EXPECT_EQ(key.verdict == KeyReport::Verdict::refused, key.path == "zero_optimization.stage")
        << key.path;
    EXPECT_TRUE(key.deepspeed) << key.path;
  }
  EXPECT_EQ(report.inspection.keys.size(), 36u);
}
