// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"

namespace zero_keys_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

std::string section(const std::string& keys) {
  return R"({"train_batch_size": 8, "zero_optimization": {)" + keys + "}}";
}

Inspection inspect(const std::string& text) { return Files({text}).inspect(); }

}  // namespace

TEST(config_zero_keys, stages_and_their_oldest_spelling_are_read) {
  for (int stage = 0; stage <= 3; ++stage)
    EXPECT_EQ(
        config(section("\"stage\": " + std::to_string(stage))).get_int("zero_optimization.stage"),
        stage);
  EXPECT_EQ(config(R"({"zero_optimization": true})").get_int("zero_optimization.stage"), 1);
  EXPECT_EQ(config(R"({"zero_optimization": false})").get_int("zero_optimization.stage"), 0);
  EXPECT_TRUE(has(error_of(section("\"stage\": 4")), "must be between 0 and 3, found 4"));
}

TEST(config_zero_keys, defaults_are_deepspeeds_but_for_speed) {
  const Config c = config(section("\"stage\": 3"));
  EXPECT_EQ(c.get_int("zero_optimization.stage3_prefetch_bucket_size"), 50'000'000);
  EXPECT_EQ(c.get_int("zero_optimization.stage3_param_persistence_threshold"), 100'000);
  EXPECT_EQ(c.get_int("zero_optimization.stage3_max_live_parameters"), 1'000'000'000);
  EXPECT_EQ(c.get_int("zero_optimization.zero_hpz_partition_size"), 1);
  EXPECT_EQ(c.get_int("zero_optimization.mics_shard_size"), -1);
  EXPECT_EQ(c.get_string("zero_optimization.offload_optimizer.device"), "none");
  EXPECT_EQ(c.get_string("zero_optimization.offload_param.device"), "none");
  EXPECT_FALSE(c.has("zero_optimization.reduce_bucket_size"));
  EXPECT_EQ(config(section(R"("stage": 2, "reduce_bucket_size": 5e8)"))
                .get_int("zero_optimization.reduce_bucket_size"),
            500'000'000);
}

TEST(config_zero_keys, names_without_the_prefix_and_older_ones_are_read) {
  const Config c = config(section(
      R"("stage": 3, "prefetch_bucket_size": 0, "param_persistence_threshold": 7,
         "max_live_parameters": 9, "ignore_unused_parameters": true)"));
  EXPECT_EQ(c.get_int("zero_optimization.stage3_prefetch_bucket_size"), 0);
  EXPECT_EQ(c.get_int("zero_optimization.stage3_param_persistence_threshold"), 7);
  EXPECT_EQ(c.get_int("zero_optimization.stage3_max_live_parameters"), 9);
  EXPECT_TRUE(c.get_bool("training.find_unused_parameters"));
}

TEST(config_zero_keys, keys_of_another_stage_are_accepted_without_effect) {
  auto inspection = inspect(section(
      R"("stage": 2, "stage3_max_live_parameters": 1e9, "offload_optimizer": {"nvme_path": "/x"})"));
  EXPECT_TRUE(inspection.ok());
  const auto* key = find(inspection, "zero_optimization.stage3_max_live_parameters");
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(key->verdict, KeyReport::Verdict::without_effect);
  EXPECT_EQ(key->why,
            "is read when zero_optimization.stage is 3, and zero_optimization.stage is 2");
  EXPECT_EQ(find(inspection, "zero_optimization.offload_optimizer.nvme_path")->verdict,
            KeyReport::Verdict::without_effect);

  // Not even with the device that would ask for it, at stage 0.
  inspection = inspect(R"({"train_batch_size": 8, "aio": {"thread_count": 2},
      "zero_optimization": {"stage": 0, "offload_param": {"device": "nvme", "buffer_size": 5}}})");
  EXPECT_TRUE(inspection.ok());
  for (const auto& k : inspection.keys)
    if (k.path != "train_batch_size" && k.path != "zero_optimization.stage") {
      EXPECT_EQ(k.verdict, KeyReport::Verdict::without_effect) << k.path;
    }
}

TEST(config_zero_keys, share_weights_is_ours_and_for_stages_1_and_2) {
  EXPECT_TRUE(config(section(R"("stage": 2, "share_weights": true)"))
                  .get_bool("zero_optimization.share_weights"));
  for (int stage : {0, 3})
    EXPECT_TRUE(
        has(error_of(section("\"stage\": " + std::to_string(stage) + ", \"share_weights\": true")),
            "share_weights applies when zero_optimization.stage is 1 or 2"));
  EXPECT_TRUE(has(error_of(R"({"comm": {"backend": "gloo"},
                               "zero_optimization": {"stage": 1, "share_weights": true}})"),
                  "has no shared memory"));
}

TEST(config_zero_keys, offload_to_the_host_moves_nothing_here) {
  for (
      const char* text :
      {R"("stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "CPU"})",
       R"("stage": 3, "cpu_offload": true, "cpu_offload_param": true, "cpu_offload_use_pin_memory": true)",
       R"("stage": 3, "cpu_offload": true, "cpu_offload_params": true)"}) {
    const auto inspection = inspect(section(text));
    EXPECT_TRUE(inspection.ok()) << text;
    for (const char* path :
         {"zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"}) {
      const auto* key = find(inspection, path);
      ASSERT_NE(key, nullptr) << path << text;
      EXPECT_EQ(key->verdict, KeyReport::Verdict::without_effect);
      EXPECT_TRUE(has(key->why, "already in host memory"));
    }
  }
  EXPECT_EQ(config(section(R"("stage": 3, "cpu_offload": false)"))
                .get_string("zero_optimization.offload_optimizer.device"),
            "none");
  EXPECT_EQ(error_of(section(
                R"("stage": 2, "cpu_offload": false, "offload_optimizer": {"device": "cpu"})")),
            "");
  EXPECT_TRUE(has(
      error_of(
          section(R"("stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"})")),
      "is given twice"));
  EXPECT_TRUE(has(error_of(section(R"("cpu_offload": "yes")")), "expected true or false"));
}

TEST(config_zero_keys, offload_to_disk_reads_its_keys) {
  const Config c = config(R"({"zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/a", "pipeline_read": true},
      "offload_param": {"device": "nvme", "nvme_path": "/b", "max_in_cpu": 1e7}},
      "aio": {"thread_count": 4, "block_size": 262144}})");
  EXPECT_EQ(c.get_string("zero_optimization.offload_optimizer.nvme_path"), "/a");
  EXPECT_TRUE(c.get_bool("zero_optimization.offload_optimizer.pipeline_read"));
  EXPECT_EQ(c.get_int("zero_optimization.offload_optimizer.buffer_count"), 4);
  EXPECT_EQ(c.get_int("zero_optimization.offload_param.buffer_count"), 5);
  EXPECT_EQ(c.get_int("zero_optimization.offload_param.buffer_size"), 100'000'000);
  EXPECT_EQ(c.get_int("zero_optimization.offload_param.max_in_cpu"), 10'000'000);
  EXPECT_EQ(c.get_int("zero_optimization.sub_group_size"), 1'000'000'000);
  // Not DeepSpeed's 1e9: whoever names a disk wants the parameters there.
  EXPECT_EQ(config(section(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/b"})"))
                .get_int("zero_optimization.offload_param.max_in_cpu"),
            0);
  EXPECT_EQ(c.get_int("aio.block_size"), 262144);
  EXPECT_EQ(c.get_int("aio.queue_depth"), 8);
}

TEST(config_zero_keys, what_excludes_each_other_is_one_sentence_with_its_place) {
  EXPECT_EQ(error_of(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "nvme"}}})"),
            "c.json:1:64: zero_optimization.offload_param.device is \"nvme\", and "
            "zero_optimization.stage 2 (c.json:1:33) keeps parameters whole on every rank: set the "
            "stage to 3, or remove offload_param");
  EXPECT_EQ(
      error_of(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}})"),
      "c.json:1:68: zero_optimization.offload_optimizer.device is \"nvme\" and needs "
      "zero_optimization.offload_optimizer.nvme_path, a folder on a fast disk");
  const std::pair<const char*, const char*> rows[] = {
      {R"({"zero_optimization": {"stage": 1}, "optimizer": {"type": "Adafactor"}})",
       "cannot be sharded"},
      {R"({"zero_optimization": {"stage": 1}, "amp": {"enabled": true}})", "do not support ZeRO"},
      {R"({"zero_optimization": {"stage": 3}, "fp16": {"enabled": true, "emulate": true}})",
       "keeps a float32 copy of every weight"},
      {R"({"zero_optimization": {"stage": 3, "mics_shard_size": 0}})", "or -1 for all"},
      {R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2, "zero_hpz_partition_size": 4}})",
       "sets the same number"},
      {R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2}, "parallelism": {"dp_shard": 4}})",
       "sets the same number"},
      {R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true}})", "is refused: "},
      {R"({"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}})", "is refused: "},
      {R"({"zero_optimization": {"stage": 2, "stag": 1}})", "\"zero_optimization.stage\""},
      {R"({"zero_optimization": {"stage": 2, "offload_optimiser": {"device": "cpu"}}})",
       "\"zero_optimization.offload_optimizer"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "disk"}}})",
       "\"disk\" is not one of none, cpu, nvme"},
  };
  for (auto [text, part] : rows) EXPECT_TRUE(has(error_of(text), part)) << text << error_of(text);
  for (const char* text :
       {R"({"zero_optimization": {"stage": 2}, "fp16": {"enabled": true, "emulate": true}})",
        R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})",
        R"({"zero_optimization": {"stage": 3}, "torch_autocast": {"enabled": true}})",
        R"({"zero_optimization": {"stage": 3}, "optimizer": {"type": "Lamb"}})",
        R"({"zero_optimization": {"stage": 0}, "optimizer": {"type": "Adafactor"}})",
        R"({"zero_optimization": {"stage": 3}, "training": {"reproducible": true}})"})
    EXPECT_EQ(error_of(text), "") << text;
}

TEST(config_zero_keys, a_host_that_shares_out_is_dp_shard_by_any_name) {
  for (
      const char* text :
      {R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2}})",
       R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}})",
       R"({"zero_optimization": {"stage": 3}, "parallelism": {"dp_shard": 2}})",
       R"({"zero_optimization": {"stage": 3}, "parallelism": {"dp_replicate": 4}})",
       R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2}, "parallelism": {"dp_replicate": 4}})"}) {
    const Config c = config(text, {"train_batch_size=64"});
    const Sharding s = c.resolve_sharding(8);
    EXPECT_EQ(s.dp_shard, 2) << text;
    EXPECT_EQ(s.dp_replicate, 4) << text;
    EXPECT_EQ(s.stage, 3);
    const Config again = Config::from_text("config.json", c.to_json());
    EXPECT_EQ(again.hash(), c.hash()) << text;
    EXPECT_EQ(again.resolve_sharding(8).dp_shard, 2);
  }
  // Below stage 3 DeepSpeed does not read them.
  EXPECT_EQ(config(R"({"zero_optimization": {"stage": 2, "mics_shard_size": 2}})")
                .resolve_sharding(8)
                .dp_shard,
            8);
  try {
    config(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 3}})", {"train_batch_size=64"})
        .resolve_batches(4);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_EQ(std::string(e.what()),
              "parallelism.dp_shard 3 (c.json:1:55) does not divide 4 ranks: use a divisor of 4, "
              "or leave it out");
  }
}

TEST(config_zero_keys, the_resolved_file_of_a_stage_loads_again) {
  for (
      const char* text :
      {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}})",
       R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"}}})",
       R"({"zero_optimization": {"stage": 1, "share_weights": true}})"}) {
    const Config c = config(text);
    const Config again = Config::from_text("config.json", c.to_json());
    EXPECT_EQ(again.hash(), c.hash()) << text;
    // …and another stage gives way to what the file's stage implied.
    EXPECT_EQ(Config::from_text("config.json", c.to_json(), {"zero_optimization.stage=0"})
                  .get_int("zero_optimization.stage"),
              0)
        << text;
  }
}

}  // namespace zero_keys_test
