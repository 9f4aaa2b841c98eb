// SPDX-License-Identifier: Apache-2.0
// ds_config.json files as people have them (tests/config/ds/, in the style of public ones: same
// keys and values), each with what `config check` prints about it beside it. After a change that is
// meant: TRIREME_UPDATE_GOLDEN=1 test_config --gtest_filter='config_ds_config.*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/config/small_configs.h"
#include "tests/support/paths.h"
#include "trireme/config/report.h"

namespace ds_config_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;
const std::string kFolder = trireme::testing::source_path("/tests/config/ds/");

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".json") found.push_back(entry.path().stem());
  std::sort(found.begin(), found.end());
  return found;
}

/// Without the folder, which is another on each machine.
std::string plain(std::string text) {
  for (size_t at = 0; (at = text.find(kFolder, at)) != std::string::npos;)
    text.erase(at, kFolder.size());
  return text;
}

CheckReport check(const std::string& name, const Sets& sets = {}, int world = 0) {
  return check_config(ConfigInputs::from({kFolder + name + ".json"}, sets), world);
}

/// Text columns are padded to the widest origin, which holds the folder: single blanks compare.
std::string squeezed(const std::string& text) {
  std::string out;
  for (char c : text)
    if (c != ' ' || out.empty() || (out.back() != ' ' && out.back() != '\n')) out += c;
  return out;
}

std::string checked(const std::string& name) {
  try {
    return squeezed(plain(check_text(check(name))));
  } catch (const UsageError& error) {
    return plain(error.what()) + "\n";
  }
}

const KeyReport* find(const CheckReport& report, std::string_view path) {
  return trireme::testing::find(report.inspection, path);
}

}  // namespace

TEST(config_ds_config, every_key_of_the_files_people_have_gets_its_verdict) {
  ASSERT_EQ(names().size(), 19u);
  for (const auto& name : names()) {
    const std::string golden = kFolder + name + ".check", now = checked(name);
    if (std::getenv("TRIREME_UPDATE_GOLDEN")) write_file_atomic(golden, now);
    EXPECT_EQ(now, read_file(golden)) << name;
  }
}

TEST(config_ds_config, files_of_zero_load_beside_a_model) {
  const std::pair<const char*, int> files[] = {{"trainer_zero3", 3},
                                               {"trainer_zero2", 2},
                                               {"llava_zero3_offload", 3},
                                               {"accelerate_zero1", 1},
                                               {"accelerate_zero2", 2},
                                               {"accelerate_zero2_offload", 2},
                                               {"accelerate_zero3", 3},
                                               {"accelerate_zero3_offload", 3},
                                               {"megatron_func_scheduler", 2},
                                               {"axolotl_zero3_bf16", 3},
                                               {"cifar", 1}};
  for (auto [name, stage] : files) {
    const Config c = Config::load(ConfigInputs::from(
        {trireme::testing::source_path("/examples/gpt.json"), kFolder + name + ".json"}));
    EXPECT_EQ(c.get_int("zero_optimization.stage"), stage) << name;
    EXPECT_EQ(c.resolve_sharding(4).dp_shard, 4) << name;
  }
}

TEST(config_ds_config, a_misspelt_threshold_is_named_with_the_nearest) {
  const auto report = check("megatron_infinity");
  const auto* key = find(report, "zero_optimization.stage3_param_persitance_threshold");
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(plain(key->error),
            "megatron_infinity.json:10:5: unknown key "
            "\"zero_optimization.stage3_param_persitance_threshold\"; the nearest known key is "
            "\"zero_optimization.stage3_param_persistence_threshold\"");
}

TEST(config_ds_config, bare_words_fail_with_line_and_column) {
  const std::string text = checked("curriculum_bare_words");
  EXPECT_EQ(text.rfind("curriculum_bare_words.json:11:23: ", 0), 0u) << text;
  EXPECT_NE(text.find("CONFIG_CL_MIN"), std::string::npos) << text;
}

TEST(config_ds_config, accumulation_is_derived_and_a_product_that_fails_names_all_numbers) {
  EXPECT_EQ(check("qanet_onecycle", {}, 4).batches->accumulation, 4);  // 512 / 32 / 4
  EXPECT_NE(check("qanet_onecycle", {}, 3).batch_error.find("is not divisible by"),
            std::string::npos);
  try {
    config(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8,
               "gradient_accumulation_steps": 3})")
        .resolve_batches(2);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_EQ(std::string(e.what()),
              "train_batch_size 64 (c.json:1:22) is not train_micro_batch_size_per_gpu 8 "
              "(c.json:1:60) × gradient_accumulation_steps 3 (c.json:2:47) × 2 ranks = 48: change "
              "one, or leave one out to have it derived");
  }
}

TEST(config_ds_config, deepspeeds_traps_are_its_own) {
  const Config c = config(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                              "scheduler": {"type": "WarmupLR"}})");
  EXPECT_TRUE(c.get_bool("optimizer.params.adam_w_mode"));
  EXPECT_EQ(c.get_string("scheduler.params.warmup_type"), "log");
  EXPECT_EQ(c.get_int("scheduler.params.warmup_num_steps"), 1000);
  EXPECT_EQ(c.get_double("gradient_clipping"), 1.0);
  const std::string text = checked("cifar");
  for (const char* note : {"note: optimizer.type Adam is AdamW", "warms up logarithmically"})
    EXPECT_NE(text.find(note), std::string::npos) << note << "\n" << text;
  EXPECT_NE(checked("squad_fp16_zero2").find("bias_correction"), std::string::npos);
}

}  // namespace ds_config_test
