// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

using namespace trireme;
using Sets = std::vector<std::string>;

namespace {

Config config(std::string_view text, const Sets& sets = {}) {
  return Config::from_text("c.json", text, sets);
}

std::string error_of(std::string_view text, const Sets& sets = {}) {
  try {
    config(text, sets);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// Files of one folder, loaded in order; origins say a.json, b.json, …
struct Files {
  PrivateFolder folder;
  std::vector<std::string> paths;
  Files(std::initializer_list<std::string_view> texts) {
    char name = 'a';
    for (auto text : texts) {
      paths.push_back(folder / (std::string(1, name++) + ".json"));
      write_file_atomic(paths.back(), text);
    }
  }
  Config load(const Sets& sets = {}) const { return Config::load(ConfigInputs::from(paths, sets)); }
  Inspection inspect(const Sets& sets = {}) const {
    return Config::inspect(ConfigInputs::from(paths, sets));
  }
};

std::string product(const Batches& b) {
  return std::to_string(b.train) + "=" + std::to_string(b.micro) + "*" +
         std::to_string(b.accumulation) + "*" + std::to_string(b.dp);
}

const KeyReport* find(const Inspection& inspection, std::string_view path) {
  for (const auto& key : inspection.keys)
    if (key.path == path) return &key;
  return nullptr;
}

}  // namespace

TEST(config_config, an_empty_file_gives_the_defaults) {
  auto c = config("{}");
  EXPECT_EQ(c.get_string("model.type"), "gpt");
  EXPECT_EQ(c.get_int("model.vocab"), 256);
  EXPECT_EQ(c.get_string("data.type"), "corpus");
  EXPECT_EQ(c.get_string_list("data.paths"), (Sets{"/usr/include/c++", "/usr/include/torch"}));
  EXPECT_EQ(c.get_int("training.seed"), 42);
  EXPECT_EQ(c.get_int("training.steps"), 1000);
  EXPECT_EQ(c.get_double("gradient_clipping"), 1.0);
  EXPECT_EQ(c.get_int("steps_per_print"), 10);
  EXPECT_EQ(c.get_string("optimizer.type"), "AdamW");
  EXPECT_EQ(c.get_double_list("optimizer.params.betas"), (std::vector<double>{0.9, 0.999}));
  EXPECT_EQ(c.get_string_list("optimizer.params.no_decay"), (Sets{"*.bias", "*norm*", "*ln*"}));
  EXPECT_TRUE(c.get_bool("checkpoint.at_end"));
  EXPECT_EQ(c.get_int("checkpoint.keep"), 2);
  EXPECT_EQ(c.get_double("comm.timeout_s"), 600);
  EXPECT_FALSE(c.has("checkpoint.folder"));
  EXPECT_TRUE(c.is_default("training.seed"));
  EXPECT_EQ(c.origin("training.seed"), "default");
}

TEST(config_config, later_files_and_flags_override_and_keep_their_origin) {
  Files files{R"({"training": {"steps": 10, "seed": 1}, "device": "cpu"})",
              "{\n\"training\": {\"seed\": 2}}"};
  auto c = files.load({"training.eval_every=5", "training.eval_every=7"});
  EXPECT_EQ(c.get_int("training.steps"), 10);
  EXPECT_EQ(c.origin("training.steps"), files.paths[0] + ":1:24");
  EXPECT_EQ(c.get_int("training.seed"), 2);
  EXPECT_EQ(c.origin("training.seed"), files.paths[1] + ":2:22");
  EXPECT_EQ(c.get_int("training.eval_every"), 7);
  EXPECT_EQ(c.origin("training.eval_every"), "--set");
  EXPECT_FALSE(c.is_default("training.eval_every"));
}

TEST(config_config, a_flag_keeps_its_own_name_as_origin) {
  ConfigInputs inputs;
  inputs.overrides.push_back({"monitor.metrics", "m.jsonl", "--metrics"});
  auto c = Config::load(inputs);
  EXPECT_EQ(c.get_string("monitor.metrics"), "m.jsonl");
  EXPECT_EQ(c.origin("monitor.metrics"), "--metrics");
}

TEST(config_config, set_reads_json_else_text) {
  auto c = config(
      "{}", {"optimizer.params.lr=3e-4", "optimizer.params.betas=[0.8, 0.9]", "training.steps=1e3",
             "generate.prompt=123", "data.paths=/tmp/a b", "monitor.progress=false",
             "data.extensions=[\".h\"]", "scheduler={\"type\": \"cosine\"}"});
  EXPECT_EQ(c.get_double("optimizer.params.lr"), 3e-4);
  EXPECT_EQ(c.get_double_list("optimizer.params.betas")[1], 0.9);
  EXPECT_EQ(c.get_int("training.steps"), 1000);
  EXPECT_EQ(c.get_string("generate.prompt"), "123");  // a key for text takes text
  EXPECT_EQ(c.get_string_list("data.paths"), Sets{"/tmp/a b"});
  EXPECT_FALSE(c.get_bool("monitor.progress"));
  EXPECT_EQ(c.get_string_list("data.extensions"), Sets{".h"});
  EXPECT_EQ(c.get_string("scheduler.type"), "cosine");
  EXPECT_EQ(config("{}", {"generate.prompt=[1"}).get_string("generate.prompt"), "[1");
  EXPECT_EQ(config("{}", {"generate.prompt="}).get_string("generate.prompt"), "");
  EXPECT_EQ(config("{}", {"generate.prompt=\"a\\nb\""}).get_string("generate.prompt"), "a\nb");
  EXPECT_EQ(config("{}", {"generate.prompt=a=b"}).get_string("generate.prompt"), "a=b");
}

TEST(config_config, a_set_that_is_no_setting_is_refused) {
  EXPECT_NE(error_of("{}", {"training.steps"}).find("KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of("{}", {"=3"}).find("KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of("{}", {"data.paths=[\"a\""}).find("never closed"), std::string::npos);
  EXPECT_NE(error_of("{}", {"generate.prompt=\xff"}).find("UTF-8"), std::string::npos);
  EXPECT_EQ(error_of("{}", {"training.stepz=3"}),
            "--set: unknown key \"training.stepz\"; the nearest known key is \"training.steps\"");
}

TEST(config_config, unknown_keys_name_place_key_and_nearest) {
  EXPECT_EQ(
      error_of("{\n  \"training\": {\"stesp\": 3}}"),
      "c.json:2:16: unknown key \"training.stesp\"; the nearest known key is \"training.steps\"");
  EXPECT_EQ(error_of("{\"optimzer\": {\"type\": \"SGD\"}}"),
            "c.json:1:2: unknown key \"optimzer\"; the nearest known key is \"optimizer\"");
  EXPECT_NE(error_of(R"({"training.": 3})"), "");
  EXPECT_NE(error_of(R"({"": 3})"), "");
}

TEST(config_config, wrong_types_name_place_expected_and_found) {
  EXPECT_EQ(error_of(R"({"training": {"steps": "many"}})"),
            "c.json:1:24: training.steps: expected an integer, found the string \"many\"");
  EXPECT_EQ(error_of(R"({"training": {"steps": 1.5}})"),
            "c.json:1:24: training.steps: expected an integer, found 1.5");
  EXPECT_EQ(error_of(R"({"checkpoint": {"at_end": 1}})"),
            "c.json:1:27: checkpoint.at_end: expected true or false, found 1");
  EXPECT_EQ(
      error_of(R"({"data": {"paths": [1]}})"),
      "c.json:1:20: data.paths: expected a string or an array of strings, found the array [1]");
  EXPECT_EQ(error_of(R"({"optimizer": "SGD"})"),
            "c.json:1:15: optimizer is a section: expected { … }, found the string \"SGD\"");
  EXPECT_EQ(error_of(R"({"training": {"steps": {"a": 1}}})"),
            "c.json:1:24: training.steps: expected an integer, found the object {\"a\": 1}");
  EXPECT_NE(error_of("[1]").find("a configuration is an object"), std::string::npos);
}

TEST(config_config, values_out_of_range_are_refused) {
  EXPECT_EQ(error_of(R"({"model": {"layers": 0}})"),
            "c.json:1:22: model.layers: must be between 1 and 10000, found 0");
  EXPECT_EQ(error_of(R"({"optimizer": {"params": {"lr": -1}}})"),
            "c.json:1:33: optimizer.params.lr: must be at least 0, found -1");
  EXPECT_NE(error_of(R"({"model": {"type": "mlp", "hidden": [8, 0]}})"), "");
  EXPECT_EQ(error_of(R"({"device": "tpu"})"),
            "c.json:1:12: device: \"tpu\" is not one of auto, cpu, cuda");
}

TEST(config_config, choices_are_compared_without_case) {
  auto c = config(R"({"optimizer": {"type": "adamw"}, "scheduler": {"type": "WARMUPLR"}})");
  EXPECT_EQ(c.get_string("optimizer.type"), "AdamW");
  EXPECT_EQ(c.get_string("scheduler.type"), "WarmupLR");
}

TEST(config_config, several_mistakes_are_counted) {
  EXPECT_NE(error_of(R"({"a": 1, "b": 2, "device": 3})")
                .find("(and 2 more: trireme config check lists them)"),
            std::string::npos);
}

TEST(config_config, one_value_serves_as_a_list_of_one) {
  auto c = config(R"({"model": {"type": "mlp", "hidden": 64}, "data": {"type": "dummy"}})");
  EXPECT_EQ(c.get_int_list("model.hidden"), std::vector<int64_t>{64});
  EXPECT_EQ(
      config(R"({"model": {"type": "mlp", "hidden": [4, 5e1]}})").get_int_list("model.hidden"),
      (std::vector<int64_t>{4, 50}));
}

TEST(config_config, auto_in_a_file_leaves_what_an_earlier_file_says) {
  Files files{
      R"({"optimizer": {"params": {"lr": 0.5}}, "device": "cpu"})",
      R"({"optimizer": {"params": {"lr": "auto", "eps": null}}, "scheduler": null, "device": "auto"})"};
  auto c = files.load();
  EXPECT_EQ(c.get_double("optimizer.params.lr"), 0.5);
  EXPECT_TRUE(c.is_default("optimizer.params.eps"));
  EXPECT_EQ(c.get_string("device"), "auto");  // there it is one of the choices
  auto d = files.load({"optimizer.params.lr=auto"});
  EXPECT_EQ(d.get_double("optimizer.params.lr"), 0.001);
  EXPECT_TRUE(d.is_default("optimizer.params.lr"));
  EXPECT_EQ(config(R"({"fp16": {"enabled": "auto"}, "train_batch_size": "auto"})")
                .get_int("steps_per_print"),
            10);
}

TEST(config_config, dotted_keys_are_the_same_as_nested_ones) {
  EXPECT_EQ(config(R"({"training.steps": 5})").get_int("training.steps"), 5);
  EXPECT_EQ(error_of(R"({"training.steps": 5, "training": {"steps": 6}})"),
            "c.json:1:45: training.steps is given twice (first at c.json:1:20); remove one");
}

TEST(config_config, other_names_of_a_key_are_that_key) {
  EXPECT_EQ(config(R"({"training": {"log_every": 3}})").get_int("steps_per_print"), 3);
  EXPECT_TRUE(config(R"({"dataloader_drop_last": true})").get_bool("training.drop_last"));
  EXPECT_EQ(error_of(R"({"training": {"log_every": 3}, "steps_per_print": 4})"),
            "c.json:1:51: steps_per_print is given twice (first at c.json:1:28); remove one");
  EXPECT_NE(error_of(R"({"steps_per_print": 4, "training": {"log_every": 3}})")
                .find("as steps_per_print"),
            std::string::npos);
}

TEST(config_config, zero_and_what_is_not_built_are_refused_and_their_absence_is_fine) {
  for (auto text :
       {R"({"zero_optimization": {"stage": 1}})", R"({"zero_optimization": {"stage": 3}})",
        R"({"zero_optimization": true})", R"({"fp16": {"fp16_master_weights_and_grads": true}})",
        R"({"bf16": {"bf16_optimizer_states": true}})", R"({"amp": {"loss_scale": "128"}})",
        R"({"parallelism": {"tensor": 2}})", R"({"parallelism": {"pipeline": 2}})",
        R"({"sparse_attention": {"mode": "fixed"}})", R"({"data_types": {"param_dtype": "bf16"}})",
        R"({"optimizer": {"type": "Muon"}})",
        R"({"optimizer": {"type": "OneBitLamb", "params": {"freeze_step": 1}}})",
        R"({"scheduler": {"params": {"cycle_first_stair_count": 3}}})",
        R"({"optimizer": {"params": {"amsgrad": true}}})"})
    EXPECT_NE(error_of(text).find("is refused: "), std::string::npos) << text << error_of(text);
  for (auto text :
       {R"({"zero_optimization": {"stage": 0}})", R"({"zero_optimization": false})",
        R"({"fp16": {"enabled": false, "loss_scale": 0}})", R"({"bf16": {"enabled": false}})",
        R"({"parallelism": {"tensor": 1, "expert": 1}})", R"({"communication_data_type": "fp32"})",
        R"({"optimizer": {"params": {"amsgrad": false, "bias_correction": true}}})",
        R"({"optimizer": {"type": "SGD", "params": {"dampening": 0}}})"})
    EXPECT_EQ(error_of(text), "") << text;
  EXPECT_NE(error_of(R"({"zero_optimization": {"stage": 2}})").find("ZeRO arrives with sharding"),
            std::string::npos);
}

TEST(config_config, optimizers_and_schedules_take_their_own_keys) {
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
      {R"({"optimizer": {"type": "Adafactor", "params": {"eps": 1e-8}}})", "applies when"},
      {R"({"optimizer": {"type": "Adafactor", "params": {"beta2_decay": 0}}})", "must not be 0"},
      {R"({"optimizer": {"type": "SGD", "params": {"alpha": 0.9}}})", "applies when"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1}}})",
       "momentum is not cycled"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_momentum": false,
            "cycle_max_lr": 1}}})",
       "cycle_min_lr is not given"},
      {R"({"scheduler": {"type": "WSD"}})", "decay_num_steps is not given"},
      {R"({"scheduler": {"type": "polynomial", "params": {"power": 0}}})", "above 0"},
      {R"({"scheduler": {"lr_scaling": "linear"}})", "base_batch_size is not given"},
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

TEST(config_config, only_the_value_that_wins_is_judged) {
  EXPECT_EQ(error_of(R"({"zero_optimization": {"stage": 2}})", {"zero_optimization.stage=0"}), "");
}

TEST(config_config, keys_without_effect_are_accepted_and_listed) {
  Files files{
      R"({"wall_clock_breakdown": true, "tensorboard": {"enabled": true, "output_path": "x"},
                  "comet": {"anything": [1, {"a": 2}]}, "optimizer": {"params": {"torch_adam": true}}})"};
  auto inspection = files.inspect();
  EXPECT_TRUE(inspection.ok());
  for (auto path : {"wall_clock_breakdown", "tensorboard.enabled", "comet.anything",
                    "optimizer.params.torch_adam"}) {
    ASSERT_NE(find(inspection, path), nullptr) << path;
    EXPECT_EQ(find(inspection, path)->verdict, KeyReport::Verdict::without_effect);
    EXPECT_FALSE(find(inspection, path)->why.empty());
  }
  EXPECT_EQ(config("{}").hash(), files.load().hash());
}

TEST(config_config, a_key_of_another_choice_is_an_error_beside_it_and_gives_way_to_a_later_one) {
  EXPECT_EQ(error_of(R"({"optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.99]}}})"),
            "c.json:1:51: optimizer.params.betas applies when optimizer.type is Adam or AdamW or "
            "Lamb or Lion, and optimizer.type is \"SGD\" (c.json:1:24); remove it");
  EXPECT_NE(error_of(R"({"model": {"hidden": 3}})").find("applies when model.type is mlp"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"training": {"leaves": 4}})").find("training.reproducible is true"),
            std::string::npos);

  Files files{
      R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.99], "lr": 0.1}}, "model": {"layers": 2},
                  "data": {"paths": "/tmp"}})"};
  auto c = files.load({"optimizer.type=SGD", "model.type=net"});
  EXPECT_FALSE(c.applies("optimizer.params.betas"));
  EXPECT_EQ(c.get_double("optimizer.params.lr"), 0.1);
  EXPECT_EQ(c.get_string("data.type"), "digits");
  auto inspection = files.inspect({"optimizer.type=SGD", "model.type=net"});
  EXPECT_EQ(find(inspection, "optimizer.params.betas")->verdict,
            KeyReport::Verdict::without_effect);
  EXPECT_EQ(find(inspection, "data.paths")->why, "data.type is \"digits\", chosen later");
}

TEST(config_config, data_follows_the_model) {
  EXPECT_EQ(config(R"({"model": {"type": "net"}})").get_string("data.type"), "digits");
  EXPECT_EQ(config(R"({"model": {"type": "mlp"}, "data": {"path": "/m"}})").get_string("data.type"),
            "mnist");
  EXPECT_EQ(config(R"({"model": {"type": "mlp"}})", {"data.path=/m"}).get_string("data.path"),
            "/m");
  EXPECT_EQ(config(R"({"data": {"type": "dummy"}})").get_string("data.type"), "dummy");
  EXPECT_NE(error_of(R"({"model": {"type": "net"}, "data": {"type": "corpus"}})"), "");
  EXPECT_NE(error_of(R"({"data": {"type": "digits"}})"), "");
  EXPECT_NE(error_of(R"({"model": {"type": "net"}, "data": {"type": "mnist"}})").find("data.path"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"data": {"paths": []}})").find("is empty"), std::string::npos);
  EXPECT_NE(error_of(R"({"model": {"type": "mlp", "inputs": 10}})").find("784"), std::string::npos);
}

TEST(config_config, values_that_exclude_each_other_are_refused) {
  EXPECT_EQ(error_of(R"({"model": {"width": 100, "heads": 6}})"),
            "c.json:1:21: model.width 100 does not divide by model.heads "
            "6 (c.json:1:35)");
  EXPECT_NE(error_of(R"({"model": {"heads": 7}})").find("c.json:1:21: "), std::string::npos);
  EXPECT_NE(
      error_of(R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})").find("momentum"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"optimizer": {"params": {"betas": [0.9]}}})").find("two numbers"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"optimizer": {"params": {"betas": [0.9, 1]}}})").find("below 1"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"optimizer": {"params": {"adam_w_mode": false}}})"), "");
  EXPECT_FALSE(config(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})")
                   .get_bool("optimizer.params.adam_w_mode"));
  EXPECT_NE(error_of(R"({"training": {"steps": 0}})").find("ends the training"), std::string::npos);
  EXPECT_EQ(config(R"({"training": {"epochs": 2}})").get_int("training.steps"), 0);
  EXPECT_NE(error_of(R"({"training": {"reproducible": true, "leaves": 6}})").find("power of two"),
            std::string::npos);
}

TEST(config_config, schedules_derive_what_they_need) {
  EXPECT_EQ(config("{}").get_int("scheduler.params.warmup_num_steps"), 0);
  auto cosine = config(R"({"scheduler": {"type": "cosine"}, "training": {"steps": 300}})");
  EXPECT_EQ(cosine.get_int("scheduler.params.total_num_steps"), 300);
  EXPECT_EQ(cosine.get_int("scheduler.params.warmup_num_steps"), 0);
  auto warmup =
      config(R"({"scheduler": {"type": "WarmupLR"}, "optimizer": {"params": {"lr": 0.5}}})");
  EXPECT_EQ(warmup.get_int("scheduler.params.warmup_num_steps"), 1000);
  EXPECT_EQ(warmup.get_double("scheduler.params.warmup_max_lr"), 0.5);
  EXPECT_EQ(warmup.get_string("scheduler.params.warmup_type"), "log");
  EXPECT_EQ(config(R"({"scheduler": {"type": "WarmupDecayLR"}})")
                .get_double("scheduler.params.warmup_max_lr"),
            0.001);
}

TEST(config_config, getters_refuse_other_types_and_unknown_keys) {
  auto c = config("{}");
  EXPECT_THROW(c.get_int("model.dropout"), UsageError);
  EXPECT_THROW(c.get_string("training.steps"), UsageError);
  EXPECT_THROW(c.get_int("training.stepz"), UsageError);
  EXPECT_THROW(c.get_string("checkpoint.folder"), UsageError);  // nobody gave it
  EXPECT_THROW(c.get_int("training.log_every"), UsageError);    // read by its own name
  EXPECT_EQ(c.get_double("training.seed"), 42.0);
}

TEST(config_batch_levels, two_numbers_give_the_third) {
  auto micro = config(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})");
  EXPECT_EQ(product(micro.resolve_batches(1)), "8=4*2*1");
  EXPECT_EQ(product(micro.resolve_batches(3)), "24=4*2*3");
  EXPECT_EQ(product(config(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})")
                        .resolve_batches(2)),
            "64=4*8*2");
  EXPECT_EQ(product(config(R"({"train_batch_size": 64})").resolve_batches(4)), "64=16*1*4");
  EXPECT_EQ(product(config(R"({"train_micro_batch_size_per_gpu": 5})").resolve_batches(2)),
            "10=5*1*2");
  EXPECT_THROW(config("{}").resolve_batches(1), UsageError);
}

TEST(config_batch_levels, a_later_number_rederives_the_others) {
  std::string_view both =
      R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})";
  EXPECT_EQ(product(config(both, {"train_micro_batch_size_per_gpu=8"}).resolve_batches(2)),
            "32=8*2*2");
  EXPECT_EQ(product(config(both, {"gradient_accumulation_steps=3"}).resolve_batches(2)),
            "24=4*3*2");
  EXPECT_EQ(product(config(both, {"train_batch_size=64"}).resolve_batches(2)), "64=4*8*2");
  EXPECT_EQ(product(config(both, {"train_batch_size=6"}).resolve_batches(2)),
            "6=3*1*2");  // 4 does not fit
  EXPECT_NE(config(both, {"train_batch_size=6"})
                .resolve_batches(2)
                .note.find("train_micro_batch_size_per_gpu 4"),
            std::string::npos);

  std::string_view all =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4})";
  EXPECT_EQ(product(config(all, {"train_micro_batch_size_per_gpu=4"}).resolve_batches(2)),
            "64=4*8*2");
  EXPECT_EQ(product(config(all, {"gradient_accumulation_steps=8"}).resolve_batches(2)), "64=4*8*2");
  EXPECT_EQ(product(config(all, {"train_batch_size=32"}).resolve_batches(2)), "32=8*2*2");
  EXPECT_EQ(product(config(all, {"train_batch_size=32", "train_micro_batch_size_per_gpu=2"})
                        .resolve_batches(2)),
            "32=2*8*2");
  EXPECT_THROW(config(all).resolve_batches(3), UsageError);
  EXPECT_EQ(product(config(all, {"train_micro_batch_size_per_gpu=5"}).resolve_batches(2)),
            "10=5*1*2");
}

TEST(config_batch_levels, a_number_that_one_file_dropped_stays_dropped) {
  Files files{R"({"train_batch_size": 64})",
              R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})"};
  EXPECT_EQ(product(files.load({"train_micro_batch_size_per_gpu=8"}).resolve_batches(2)),
            "32=8*2*2");
  auto inspection = files.inspect();
  EXPECT_EQ(find(inspection, "train_batch_size")->verdict, KeyReport::Verdict::without_effect);
}

// Whatever three levels give, in whatever order: the last level that gives batch numbers is kept,
// the product holds, and only that level's own numbers can make it impossible.
TEST(config_batch_levels, the_last_level_is_always_kept) {
  const std::string keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                              "gradient_accumulation_steps"};
  auto text = [&](int mask, int64_t train, int64_t micro, int64_t accumulation) {
    nlohmann::json json = nlohmann::json::object();
    if (mask & 1) json[keys[0]] = train;
    if (mask & 2) json[keys[1]] = micro;
    if (mask & 4) json[keys[2]] = accumulation;
    return json.dump();
  };
  for (int first = 1; first < 8; ++first)
    for (int second = 0; second < 8; ++second)
      for (int64_t micro : {2, 3})
        for (int dp : {1, 2, 3}) {
          if (first == 4) continue;  // accumulation alone is no batch
          std::string later = text(second, 12 * dp, micro, 2);
          Sets sets;
          auto given = nlohmann::json::parse(later);
          for (auto& [key, value] : given.items()) sets.push_back(key + "=" + value.dump());
          auto c = config(text(first, 24 * dp, 4, 6), sets);
          SCOPED_TRACE(text(first, 24 * dp, 4, 6) + later);
          if (second == 7 && micro * 2 != 12) {
            EXPECT_THROW(c.resolve_batches(dp), UsageError);
            continue;
          }
          auto b = c.resolve_batches(dp);
          EXPECT_EQ(b.train, b.micro * b.accumulation * dp);
          if (second & 1) {
            EXPECT_EQ(b.train, 12 * dp);
          }
          if (second & 2) {
            EXPECT_EQ(b.micro, micro);
          }
          if (second & 4) {
            EXPECT_EQ(b.accumulation, 2);
          }
          auto again = Config::from_text("again", c.to_json());
          EXPECT_EQ(product(again.resolve_batches(dp)), product(b));
          EXPECT_EQ(again.hash(), c.hash());
        }
}

TEST(config_batch_levels, leaves_set_the_accumulation) {
  auto c = config(
      R"({"train_micro_batch_size_per_gpu": 2, "training": {"reproducible": true, "leaves": 8}})");
  for (int dp : {1, 2, 4, 8})
    EXPECT_EQ(product(c.resolve_batches(dp)),
              "16=2*" + std::to_string(8 / dp) + "*" + std::to_string(dp));
  EXPECT_THROW(c.resolve_batches(3), UsageError);
  EXPECT_THROW(c.resolve_batches(16), UsageError);
  auto both = R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
                  "training": {"reproducible": true, "leaves": 8}})";
  EXPECT_EQ(product(config(both).resolve_batches(2)), "16=2*4*2");
  EXPECT_THROW(config(both).resolve_batches(4), UsageError);
  auto later = config(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1})",
                      {"training.reproducible=true", "training.leaves=8"});
  EXPECT_EQ(product(later.resolve_batches(2)), "16=2*4*2");
}

TEST(config_batch_levels, another_number_of_ranks_than_asked_for_is_refused) {
  auto c = config(R"({"train_batch_size": 8, "parallelism": {"dp": 4}})");
  EXPECT_EQ(product(c.resolve_batches(4)), "8=2*1*4");
  EXPECT_THROW(c.resolve_batches(2), UsageError);
}

TEST(config_config, the_resolved_file_loads_again_to_the_same_values) {
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

TEST(config_config, the_resolved_file_can_be_overridden) {
  auto dumped =
      config(R"({"model": {"layers": 2}, "train_micro_batch_size_per_gpu": 4})").to_json();
  auto c = Config::from_text("config.json", dumped, {"model.type=net", "optimizer.type=SGD"});
  EXPECT_EQ(c.get_string("data.type"), "digits");
  EXPECT_EQ(
      Config::from_text("config.json", dumped, {"training.epochs=2"}).get_int("training.steps"), 0);
}

TEST(config_config, the_hash_is_of_values_and_not_of_where_they_come_from) {
  auto c = config(R"({"training": {"steps": 50}})");
  EXPECT_EQ(c.hash().size(), 16u);
  EXPECT_EQ(config("{\n\"training.steps\": 5e1}").hash(), c.hash());
  EXPECT_EQ(config("{}", {"training.steps=50"}).hash(), c.hash());
  EXPECT_EQ(config(R"({"training": {"steps": 50, "seed": 42}})").hash(),
            c.hash());  // the default, spoken
  EXPECT_NE(config(R"({"training": {"steps": 51}})").hash(), c.hash());
  EXPECT_NE(config(R"({"training": {"steps": 50}, "train_batch_size": 4})").hash(), c.hash());
}
