// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/config.h"

#include <gtest/gtest.h>

#include "tests/config/small_configs.h"

namespace config_test {

using namespace trireme;
using namespace trireme::testing;

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
            "c.json:1:12: device is \"tpu\": use auto, cpu, cuda, cuda:N, privateuseone or "
            "privateuseone:N");
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

TEST(config_config, what_is_not_built_is_refused_and_its_absence_is_fine) {
  for (auto text :
       {R"({"zero_optimization": {"zero_quantized_gradients": true}})",
        R"({"fp16": {"fp16_master_weights_and_grads": true}})",
        R"({"bf16": {"bf16_optimizer_states": true}})", R"({"amp": {"loss_scale": "128"}})",
        R"({"parallelism": {"expert": 2}})", R"({"sparse_attention": {"mode": "fixed"}})",
        R"({"data_types": {"param_dtype": "bf16"}})", R"({"optimizer": {"type": "Muon"}})",
        R"({"optimizer": {"type": "OneBitLamb", "params": {"freeze_step": 1}}})",
        R"({"scheduler": {"params": {"cycle_first_stair_count": 3}}})"})
    EXPECT_NE(error_of(text).find("is refused: "), std::string::npos) << text << error_of(text);
  for (auto text :
       {R"({"zero_optimization": {"zero_quantized_gradients": false}})",
        R"({"fp16": {"enabled": false, "loss_scale": 0}})", R"({"bf16": {"enabled": false}})",
        R"({"parallelism": {"tensor": 1, "expert": 1}})", R"({"communication_data_type": "fp32"})",
        R"({"optimizer": {"params": {"amsgrad": true, "bias_correction": false}}})",
        R"({"optimizer": {"type": "Lamb", "params": {"bias_correction": false}}})",
        R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "dampening": 0.5}}})"})
    EXPECT_EQ(error_of(text), "") << text;
}

TEST(config_config, dampening_needs_momentum_and_no_nesterov) {
  EXPECT_NE(error_of(R"({"optimizer": {"type": "SGD", "params": {"dampening": 0.5}}})")
                .find("has no effect without optimizer.params.momentum"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"optimizer": {"type": "SGD", "params":
                         {"momentum": 0.9, "nesterov": true, "dampening": 0.5}}})")
                .find("needs optimizer.params.dampening 0"),
            std::string::npos);
}

TEST(config_config, torchs_schedules_need_their_own_keys_and_no_others) {
  for (
      auto text :
      {R"({"scheduler": {"type": "StepLR", "params": {"step_size": 3}}})",
       R"({"scheduler": {"type": "MultiStepLR", "params": {"milestones": [3, 9], "gamma": 0.5}}})",
       R"({"scheduler": {"type": "ExponentialLR", "params": {"gamma": 0.99}}})",
       R"({"scheduler": {"type": "CosineAnnealingLR", "params": {"T_max": 30}}})",
       R"({"scheduler": {"type": "CosineAnnealingWarmRestarts", "params": {"T_0": 3, "T_mult": 2}}})",
       R"({"scheduler": {"type": "OneCycleLR", "params": {"max_lr": 0.1, "cycle_momentum": false}}})",
       R"({"scheduler": {"type": "CyclicLR", "params": {"base_lr": 0.1, "max_lr": 1,
            "mode": "exp_range", "gamma": 0.9, "cycle_momentum": false}}})"})
    EXPECT_EQ(error_of(text), "") << text;
  for (auto [text, part] : std::vector<std::pair<const char*, const char*>>{
           {R"({"scheduler": {"type": "StepLR"}})", "step_size is required by the schedule"},
           {R"({"scheduler": {"type": "ExponentialLR"}})", "gamma is required by the schedule"},
           {R"({"scheduler": {"type": "MultiStepLR", "params": {"milestones": [9, 3]}}})",
            "must be increasing integers"},
           {R"({"scheduler": {"type": "MultiStepLR", "params": {"milestones": [1.5]}}})",
            "must be increasing integers"},
           {R"({"scheduler": {"type": "OneCycleLR", "params": {"max_lr": 0.1}}})",
            "does not cycle momentum"},
           {R"({"training": {"steps": 50}, "scheduler": {"type": "OneCycleLR", "params":
                {"max_lr": 0.1, "total_steps": 49, "cycle_momentum": false}}})",
            "the cycle would end before the run"},
           {R"({"scheduler": {"type": "StepLR", "params": {"step_size": 3, "T_max": 3}}})",
            "T_max"}})
    EXPECT_NE(error_of(text).find(part), std::string::npos) << text << error_of(text);
}

TEST(config_config, only_the_value_that_wins_is_judged) {
  EXPECT_EQ(error_of(R"({"parallelism": {"expert": 2}})", {"parallelism.expert=1"}), "");
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
            "AdaMod or Lamb or Lion, and optimizer.type is \"SGD\" (c.json:1:24); remove it");
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
            "c.json:1:21: model.width 100 is not divisible by model.heads 6 (c.json:1:35)");
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

}  // namespace config_test
