// SPDX-License-Identifier: Apache-2.0
// No key of the table is accepted and ignored by `trireme train`: each has a row here, or in
// key_rows.h, that changes it and sees something else happen, or names the test that does.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/support/paths.h"
#include "tests/train/key_rows.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace key_effects_test {
namespace {

std::vector<Row> rows() {
  using enum Seen;
  const auto optimizer = [](const char* type, Sets more = {}) {
    return Sets{std::string("optimizer.type=") + type} + more;
  };
  const auto schedule = [](const char* type, Sets more = {}) {
    return Sets{std::string("scheduler.type=") + type} + more;
  };
  const Sets total = {"scheduler.params.total_num_steps=20"};
  const Sets warm = {"scheduler.params.warmup_num_steps=10"};
  const Sets cycle = {"scheduler.params.cycle_momentum=false",
                      "scheduler.params.cycle_min_lr=0.001", "scheduler.params.cycle_max_lr=0.1",
                      "scheduler.params.cycle_first_step_size=5"};
  const Sets one_cycle = {"scheduler.params.cycle_momentum=false", "scheduler.params.max_lr=0.1",
                          "scheduler.params.total_steps=50"};
  const Sets cyclic = {"scheduler.params.cycle_momentum=false", "scheduler.params.base_lr=0.001",
                       "scheduler.params.max_lr=0.1", "scheduler.params.step_size_up=5"};
  const auto adafactor = [&] { return optimizer("Adafactor"); };

  std::vector<Row> all = {
      {"model.type", weights, "mlp", "net"},
      gpt({"model.layers", weights, "1", "2"}),
      gpt({"model.width", weights, "32", "16"}),
      gpt({"model.heads", weights, "2", "4"}),
      gpt({"model.context", weights, "16", "8"}),
      gpt({"model.dropout", weights, "0.1", "0"}),
      gpt({"model.vocab", weights, "256", "300"}),
      gpt({"model.tied_head", weights, "true", "false"}),
      {"model.inputs", weights, "784", "10", {"data.type=dummy"}},
      {"model.hidden", weights, "[32]", "[16]"},
      {"model.outputs", weights, "10", "12"},

      {"data.type", weights, "digits", "dummy"},
      named("data.paths", "data_corpus.windows_are_the_files_in_order_with_newlines_between"),
      named("data.extensions", "data_file_list.extensions_filter_folders_and_globs_but_not_files"),
      gpt({"data.validation_fraction", weights, "0.05", "0.4"}),
      gpt({"data.end_of_document", weights, "", "10"}),
      named("data.path", "data_idx.the_test_part_and_dotted_names_are_found"),
      {"data.train_samples", weights, "256", "100"},
      {"data.validation_samples", held_out, "50", "30"},
      {"data.workers", threads, "0", "3"},

      {"train_batch_size", weights, "16", "8"},
      {"train_micro_batch_size_per_gpu", batches, "4", "8"},
      {"gradient_accumulation_steps", batches, "2", "4"},
      gpt({"gradient_clipping", weights, "0.5", "0.1"}),
      named("steps_per_print",
            "monitor_progress.the_line_is_in_torchtitans_words_and_says_how_far_it_is"),
      {"gradient_allreduce_op", refused, "mean", "sum"},
      {"training.steps", steps, "6", "7"},
      {"training.epochs", steps, "1", "2", {"training.steps=0"}},
      {"training.seed", weights, "42", "43"},
      named("training.eval_every",
            "train_trainer.metrics_are_a_start_line_a_line_a_step_and_a_last_line"),
      named("training.eval_epochs",
            "train_step_names.an_epoch_ends_with_a_validation_and_a_step_of_its_own"),
      gpt({"training.eval_batches", held_out, "1", "2", {"train_batch_size=4"}}),
      {"training.drop_last",
       steps,
       "true",
       "false",
       {"training.steps=0", "training.epochs=1", "data.train_samples=250"}},
      named("training.find_unused_parameters",
            "train_step.a_parameter_that_gets_no_gradient_is_named_on_every_rank_in_that_step"),
      named("training.check_replicas",
            "train_model_axes.what_replicas_should_hold_alike_is_compared_every_so_many_steps"),
      named("training.reproducible",
            "parity_reproducible.without_it_another_split_agrees_within_rounding"),
      {"training.leaves", batches, "4", "8", {"training.reproducible=true", "train_batch_size=16"}},
      named("device", "device_train.says_where_it_computes_and_shows_that_memory"),
      gpt({"training.recompute_every", words, "0", "1"}),
      gpt({"training.activation_memory_mb", words, "0", "1000"}),

      {"optimizer.type", weights, "SGD", "Lion"},
      {"optimizer.params.lr", weights, "0.05", "0.01"},
      {"optimizer.params.weight_decay", weights, "0", "0.1"},
      {"optimizer.params.betas", weights, "[0.9, 0.999]", "[0.5, 0.9]", optimizer("Adam")},
      {"optimizer.params.beta3", weights, "0.999", "0.5", optimizer("AdaMod")},
      {"optimizer.params.eps", weights, "1e-8", "0.01", optimizer("Adam")},
      {"optimizer.params.adam_w_mode", weights, "true", "false",
       optimizer("Adam", {"optimizer.params.weight_decay=0.1"})},
      {"optimizer.params.freeze_step", weights, "0", "1", optimizer("Adam")},
      {"optimizer.params.bias_correction", weights, "true", "false", optimizer("Adam")},
      {"optimizer.params.amsgrad", weights, "false", "true",
       optimizer("Adam", {"optimizer.params.betas=[0.9, 0.1]"})},
      {"optimizer.params.dampening", weights, "0", "0.5"},
      {"optimizer.params.momentum", weights, "0.9", "0"},
      {"optimizer.params.nesterov", weights, "false", "true"},
      {"optimizer.params.alpha", weights, "0.99", "0.5", optimizer("RMSprop")},
      {"optimizer.params.centered", weights, "false", "true", optimizer("RMSprop")},
      {"optimizer.params.lr_decay", weights, "0", "1", optimizer("Adagrad")},
      {"optimizer.params.initial_accumulator_value", weights, "0", "1", optimizer("Adagrad")},
      {"optimizer.params.max_coeff", weights, "10", "0.02", optimizer("Lamb")},
      {"optimizer.params.min_coeff", weights, "0.01", "5", optimizer("Lamb")},
      {"optimizer.params.trust_coefficient", weights, "0.001", "0.1", optimizer("Lars")},
      {"optimizer.params.no_adapt", weights, R"(["*.bias"])", R"(["*"])", optimizer("Lars")},
      {"optimizer.params.no_decay",
       weights,
       R"(["*.bias"])",
       R"(["*"])",
       {"optimizer.params.weight_decay=0.1"}},
      {"optimizer.params.beta2_decay", weights, "-0.8", "-0.1", adafactor()},
      {"optimizer.params.eps1", weights, "1e-30", "0.1", adafactor()},
      {"optimizer.params.eps2", weights, "0.001", "0.5", adafactor()},
      {"optimizer.params.d", weights, "1", "0.01", adafactor()},
      {"optimizer.params.scale_parameter", weights, "true", "false", adafactor()},

      {"scheduler.type", rates, "constant", "cosine"},
      {"scheduler.lr_scaling", rates, "none", "linear", {}},
      {"scheduler.base_batch_size", rates, "4", "8", {"scheduler.lr_scaling=linear"}},
      {"scheduler.params.warmup_num_steps", rates, "0", "10"},
      {"scheduler.params.total_num_steps", rates, "10", "20", schedule("linear")},
      {"scheduler.params.min_lr_ratio", rates, "0.1", "0.5", schedule("linear", total)},
      {"scheduler.params.power", rates, "1", "2", schedule("polynomial", total)},
      {"scheduler.params.decay_num_steps", rates, "5", "8", schedule("WSD", total)},
      {"scheduler.params.decay_type", rates, "linear", "cosine",
       schedule("WSD", total + Sets{"scheduler.params.decay_num_steps=8"})},
      {"scheduler.params.warmup_type", rates, "log", "linear", schedule("WarmupLR", warm)},
      {"scheduler.params.warmup_min_lr", rates, "0", "0.01", schedule("WarmupLR", warm)},
      {"scheduler.params.warmup_max_lr", rates, "0.05", "0.1", schedule("WarmupLR", warm)},
      {"scheduler.params.warmup_min_ratio", rates, "0", "0.5",
       schedule("WarmupCosineLR", total + warm)},
      {"scheduler.params.cos_min_ratio", rates, "0.0001", "0.5",
       schedule("WarmupCosineLR", total + warm)},
      {"scheduler.params.cycle_min_lr", rates, "0.001", "0.01", schedule("OneCycle", cycle)},
      {"scheduler.params.cycle_max_lr", rates, "0.1", "0.2", schedule("OneCycle", cycle)},
      {"scheduler.params.cycle_first_step_size", rates, "5", "9", schedule("OneCycle", cycle)},
      {"scheduler.params.cycle_second_step_size", rates, "5", "9", schedule("OneCycle", cycle)},
      {"scheduler.params.decay_lr_rate", rates, "0.5", "1",
       schedule("OneCycle", cycle + Sets{"scheduler.params.decay_step_size=2"})},
      {"scheduler.params.decay_step_size", rates, "2", "3",
       schedule("OneCycle", cycle + Sets{"scheduler.params.decay_lr_rate=1"})},
      {"scheduler.params.cycle_momentum", refused, "false", "true", schedule("OneCycle", cycle)},
      {"scheduler.params.lr_range_test_min_lr", rates, "0.001", "0.01", schedule("LRRangeTest")},
      {"scheduler.params.lr_range_test_step_size", rates, "2000", "10", schedule("LRRangeTest")},
      {"scheduler.params.lr_range_test_step_rate", rates, "1", "5", schedule("LRRangeTest")},
      {"scheduler.params.lr_range_test_staircase", rates, "false", "true", schedule("LRRangeTest")},
      {"scheduler.params.step_size", rates, "5", "9", schedule("StepLR")},
      {"scheduler.params.milestones", rates, "[5]", "[9]", schedule("MultiStepLR")},
      {"scheduler.params.gamma", rates, "0.1", "0.5",
       schedule("StepLR", {"scheduler.params.step_size=5"})},
      {"scheduler.params.T_max", rates, "10", "20", schedule("CosineAnnealingLR")},
      {"scheduler.params.eta_min", rates, "0", "0.01",
       schedule("CosineAnnealingLR", {"scheduler.params.T_max=10"})},
      {"scheduler.params.T_0", rates, "10", "20", schedule("CosineAnnealingWarmRestarts")},
      {"scheduler.params.T_mult", rates, "1", "2",
       schedule("CosineAnnealingWarmRestarts", {"scheduler.params.T_0=5"})},
      {"scheduler.params.max_lr", rates, "0.1", "0.2", schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.total_steps", rates, "50", "60", schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.pct_start", rates, "0.3", "0.5", schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.anneal_strategy", rates, "cos", "linear",
       schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.div_factor", rates, "25", "10", schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.final_div_factor", rates, "10000", "2", schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.three_phase", rates, "false", "true", schedule("OneCycleLR", one_cycle)},
      {"scheduler.params.base_lr", rates, "0.001", "0.01", schedule("CyclicLR", cyclic)},
      {"scheduler.params.step_size_up", rates, "5", "9", schedule("CyclicLR", cyclic)},
      {"scheduler.params.step_size_down", rates, "5", "9", schedule("CyclicLR", cyclic)},
      {"scheduler.params.mode", rates, "triangular", "triangular2", schedule("CyclicLR", cyclic)},
  };
  const std::string batching = "data_efficiency.data_sampling.dynamic_batching.";
  static const std::string section[] = {
      batching + "enabled",           batching + "max_tokens",
      batching + "lr_scaling_method", batching + "min_batch_size",
      batching + "max_batch_size",    batching + "sequence_picking_order"};
  const std::pair<const char*, const char*> values[] = {
      {"false", "true"}, {"96", "48"}, {"none", "linear"},
      {"1", "9"},        {"0", "3"},   {"dataloader", "seqlen"}};
  for (size_t i = 0; i < std::size(values); ++i)
    all.push_back(
        {section[i].c_str(), weights, values[i].first, values[i].second, {}, "documents"});
  for (const char* gate : {"data_efficiency.enabled", "data_efficiency.data_sampling.enabled"})
    all.push_back({gate, weights, "false", "true", {}, "documents"});

  const std::vector<Row> more = rows_of_ranks();
  all.insert(all.end(), more.begin(), more.end());
  for (Row& row : all) {
    if (row.key == std::string("fp16.enabled")) row.with_b = {"fp16.emulate=true"};
    if (row.key == std::string("scheduler.lr_scaling"))
      row.with_b = {"scheduler.base_batch_size=4"};
    if (row.key == std::string("compression.type")) row.with_b = {"compression.start_step=0"};
    if (row.key == batching + "min_batch_size")
      row.beside = {batching + "sequence_picking_order=seqlen"};
  }
  return all;
}

bool runs(const KeyInfo& key) { return key.status == KeyStatus::supported && key.alias_of.empty(); }

}  // namespace

TEST(train_key_effects, every_key_that_runs_has_a_row) {
  std::set<std::string> seen;
  for (const Row& row : rows()) {
    EXPECT_TRUE(seen.insert(row.key).second) << row.key << " stands twice";
    EXPECT_NE(find_key(row.key), nullptr) << row.key;
  }
  for (const KeyInfo& key : all_keys())
    EXPECT_TRUE(!runs(key) || seen.contains(key.path)) << key.path << ": how is its effect seen?";
}

TEST(train_key_effects, what_is_seen_elsewhere_has_a_test) {
  std::set<std::string> tests;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(trireme::testing::source_path("/tests"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = read_file(entry.path());
    for (size_t at = 0; (at = text.find("\nTEST", at)) != std::string::npos; ++at) {
      const size_t open = text.find('(', at), comma = text.find(',', open);
      const size_t begin = text.find_first_not_of(" \n", comma + 1), end = text.find(')', begin);
      if (end != std::string::npos)
        tests.insert(text.substr(open + 1, comma - open - 1) + "." +
                     text.substr(begin, end - begin));
    }
  }
  for (const Row& row : rows())
    EXPECT_TRUE(row.seen != Seen::elsewhere || tests.contains(row.a))
        << row.key << ": there is no test " << row.a;
}

TEST(train_key_effects, another_value_is_another_run) {
  Effects effects;
  for (Row row : rows()) {
    if (row.seen == Seen::elsewhere || !runs(*find_key(row.key))) continue;
    SCOPED_TRACE(row.key);
    auto seen = [&](const std::string& value) {
      try {
        return effects.of(row, value);
      } catch (const UsageError& e) {
        return std::string("refused: ") + e.what();
      }
    };
    const std::string a = seen(row.a);
    row.beside = row.beside + row.with_b;
    const std::string b = seen(row.b);
    EXPECT_FALSE(a.starts_with("refused: ")) << a;
    EXPECT_EQ(b.starts_with("refused: "), row.seen == Seen::refused) << row.b << ": " << b;
    EXPECT_TRUE(a != b) << row.a << " and " << row.b << " are the same run";
  }
}

}  // namespace key_effects_test
