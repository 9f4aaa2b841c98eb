// SPDX-License-Identifier: Apache-2.0
// No key of the table is accepted and ignored by `trireme train`: each has a row here that changes
// it and sees something else happen, or names the test that does.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <typeinfo>

#include "tests/support/paths.h"
#include "tests/train/run_folders.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/trainer.h"

namespace key_effects_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

enum class Seen {
  weights,    // after three steps, in bits
  rates,      // of the first 40 steps
  steps,      // that the run will have
  held_out,   // samples of it, and what is evaluated
  scale,      // of the loss, after three steps
  words,      // of the run's start line: sharding, precision, recompute, exchange
  batches,    // micro × accumulation
  files,      // of the run's folder
  threads,    // of the loader
  refused,    // the second value, by its name: there is one that this run can have
  elsewhere,  // by the test that `a` names
};

struct Row {
  const char* key;
  Seen seen;
  std::string a, b;  // two values; "": not given
  Sets beside = {};
  std::string base = "mlp";  // or gpt, documents
  int ranks = 1;
  Sets with_b = {};  // what means something beside the second value alone
};

int loader_threads() {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    found += name == "trireme-data";
  }
  return found;
}

class Effects {
 public:
  std::string of(const Row& row, const std::string& value) {
    Sets sets = row.beside;
    if (!value.empty()) sets.push_back(std::string(row.key) + "=" + value);
    std::string seen;
    run_threads(
        row.ranks,
        [&](Group g) {
          const std::string mine = look(row, config_of(row, sets), g);
          if (g.rank() == 0) seen = mine;
        },
        std::chrono::seconds(120));
    return seen;
  }

 private:
  Config config_of(const Row& row, Sets sets) {
    if (row.base == "mlp") return digits("mlp", sets);
    if (row.base == "gpt") return tiny_gpt(corpus_, sets);
    const std::string section = "data_efficiency.data_sampling.dynamic_batching.";
    Sets all = {"data.type=documents", "data_efficiency.enabled=true",
                "data_efficiency.data_sampling.enabled=true", section + "enabled=true",
                section + "max_tokens=96"};
    all.insert(all.end(), sets.begin(), sets.end());
    return tiny_gpt(documents_, all);
  }

  std::string look(const Row& row, const Config& config, Group g) {
    if (row.seen == Seen::files) return files(config, g);
    trireme::Run run = build_run(config, g);
    std::ostringstream text;
    switch (row.seen) {
      case Seen::rates:
        for (int64_t s = 0; s < 40; ++s) text << run.lr->lr_at(s) << " ";
        break;
      case Seen::steps:
        text << run.steps;
        break;
      case Seen::held_out: {
        const Evaluation e = evaluate(run);
        text << (run.held_out ? run.held_out->size() : 0) << " " << e.weight;
        break;
      }
      case Seen::words:
        for (const std::string& part :
             run.setup)  // a rate is measured, and so never twice the same
          if (part.find("bfloat16 products") == std::string::npos) text << part;
        text << run.exchange->text();
        for (const auto& feature : run.features) text << typeid(*feature).name();
        break;
      case Seen::batches:
        text << run.batches.micro << " " << run.batches.accumulation;
        break;
      default: {
        start_data(run, config);
        const int threads = loader_threads();
        for (int i = 0; i < 3; ++i) train_step(run);
        if (row.seen == Seen::threads) text << threads;
        if (row.seen == Seen::scale) text << run.scaling->loss_scale();
        if (row.seen == Seen::weights)
          for (const auto& [name, w] : weights_of(run)) {
            const at::Tensor flat = w.contiguous();
            text << name;
            text.write(static_cast<const char*>(flat.data_ptr()),
                       static_cast<std::streamsize>(flat.nbytes()));
          }
      }
    }
    return text.str();
  }

  std::string files(const Config& config, Group g) {
    const std::string dir = folder_ / ("run" + std::to_string(runs_++));
    std::filesystem::create_directories(dir);
    TrainOptions options;
    options.run_dir = dir;
    train(config, g, options);
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir))
      names.insert(entry.path().filename());
    std::string text;
    for (const auto& name : names) text += name + " ";
    if (config.has("monitor.metrics") &&
        std::filesystem::exists(config.get_string("monitor.metrics")))
      text += "metrics";
    return text;
  }

  PrivateFolder folder_;
  std::string corpus_ = write_corpus(folder_), documents_ = write_documents();
  int runs_ = 0;

  std::string write_documents() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      for (int k = 0; k <= i * 7 % 11; ++k) text += static_cast<char>('a' + (i + k) % 26);
      text += "\n\n";
    }
    write_file_atomic(folder_ / "documents.txt", text);
    return folder_ / "documents.txt";
  }
};

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Row> rows() {
  using enum Seen;
  const auto gpt = [](Row row) {
    row.base = "gpt";
    return row;
  };
  const auto on = [](int ranks, Row row) {
    row.ranks = ranks;
    return row;
  };
  const auto named = [](const char* key, const char* test) {
    return Row{key, elsewhere, test, ""};
  };
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
  const Sets half = {"fp16.enabled=true", "fp16.emulate=true"};
  const auto codec = [](const char* type, Sets more = {}) {
    return Sets{std::string("compression.type=") + type, "compression.start_step=0"} + more;
  };
  const auto averaging = [](const char* type, Sets more = {}) {
    return Sets{std::string("averaging.type=") + type} + more;
  };
  const auto zero = [](int stage, Sets more = {}) {
    return Sets{"zero_optimization.stage=" + std::to_string(stage)} + more;
  };
  const auto adafactor = [&] { return optimizer("Adafactor"); };
  const Sets stages = {"parallelism.pp=2", "model.layers=4", "train_micro_batch_size_per_gpu=4"};

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

      {"parallelism.dp", refused, "1", "3"},
      on(2, {"parallelism.dp_shard", words, "1", "2", zero(1)}),
      on(2, {"parallelism.dp_replicate", words, "1", "2", zero(1)}),
      on(2, gpt({"parallelism.tp", words, "1", "2"})),
      on(2, gpt({"parallelism.sequence_parallel", words, "false", "true", {"parallelism.tp=2"}})),
      on(2, gpt({"parallelism.pp", words, "1", "2", {"train_micro_batch_size_per_gpu=4"}})),
      on(2, gpt({"parallelism.schedule", words, "1f1b", "gpipe", stages})),
      named("parallelism.schedule_file",
            "train_schedule_file.a_table_trains_to_the_bits_of_its_schedule"),
      on(2, gpt({"parallelism.virtual_stages", weights, "1", "2",
                 stages + Sets{"parallelism.schedule=breadth_first"}})),
      named(
          "parallelism.whole_stages",
          "train_whole_stages.with_one_of_four_stages_whole_a_quarter_of_the_blocks_is_in_memory"),
      on(2, gpt({"parallelism.stages", weights, "[1,3]", "[3,1]", stages})),
      on(2, gpt({"parallelism.partition_method", words, "uniform", "measured", stages})),
      {"checkpoint.every", files, "0", "2", {"checkpoint.keep=9"}},
      {"checkpoint.every_minutes", files, "0", "1e-9", {"checkpoint.keep=9"}},
      {"checkpoint.auto", files, "false", "true", {"checkpoint.keep=9"}},
      named("checkpoint.budget",
            "train_save_schedule.saving_costs_at_most_the_budget_from_the_second_save_on"),
      {"checkpoint.keep", files, "1", "3", {"checkpoint.every=1"}},
      gpt({"checkpoint.keep_best",
           files,
           "0",
           "3",
           {"checkpoint.keep=1", "training.eval_every=1", "training.eval_batches=1"}}),
      named("checkpoint.names",
            "train_step_names.an_epoch_ends_with_a_validation_and_a_step_of_its_own"),
      {"checkpoint.keep_every", files, "0", "2", {"checkpoint.keep=1"}},
      named("checkpoint.on_error",
            "train_run_saves.a_save_that_fails_is_a_warning_or_the_end_of_all_ranks_as_configured"),
      {"checkpoint.at_end", files, "true", "false"},
      named(
          "checkpoint.async",
          "train_async_saves.training_goes_on_while_a_step_is_written_and_tells_when_it_is_there"),
      named("checkpoint.snapshot_every",
            "train_snapshots.steps_between_checkpoints_are_in_the_launchers_memory"),
      named(
          "checkpoint.neighbour",
          "faults_restart_memory_hosts.a_host_that_dies_costs_no_read_and_another_takes_its_place"),
      named("checkpoint.folder", "train_resume.checkpoints_go_where_the_configuration_says"),
      named("checkpoint.init", "train_initial_weights.a_new_run_begins_with_them_in_every_layout"),
      named("checkpoint.init_map", "train_initial_weights.names_are_mapped_and_some_excepted"),
      named("checkpoint.init_except", "train_initial_weights.names_are_mapped_and_some_excepted"),
      named("monitor.metrics", "train_trainer.a_second_metrics_file_gets_the_same_lines"),
      named("monitor.progress", "monitor_progress.none_shows_nothing"),
      on(2, {"monitor.gradient_noise_scale", words, "false", "true"}),
      named("generate.prompt",
            "faults_train.generate_prints_the_prompt_and_as_many_bytes_as_asked"),
      named("generate.tokens",
            "faults_train.generate_prints_the_prompt_and_as_many_bytes_as_asked"),
      named("generate.temperature", "models_sampling.temperature_0_takes_the_likeliest"),
      named("generate.top_k", "models_sampling.top_k_keeps_the_k_likeliest"),
      named("comm.backend", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.across", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.check", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.timeout_s", "faults_train.backend_across_hosts_and_check_are_keys"),
      named("comm.bucket_mb", "parity_reproducible.bucket_sizes_do_not_show"),
      on(2, {"comm.strategy", words, "all_reduce", "adasum"}),
      named("comm.tune_buckets",
            "train_tune_buckets.what_was_found_is_written_and_the_next_run_takes_it"),
      named("comm.tuning_budget",
            "train_tune_buckets.what_was_found_is_written_and_the_next_run_takes_it"),
      named("comm.buckets_file",
            "train_tune_buckets.what_was_found_is_written_and_the_next_run_takes_it"),

      on(2, {"compression.type", weights, "none", "int8", {}}),
      on(2, {"compression.block", weights, "256", "8", codec("int8")}),
      on(2, {"compression.density", weights, "0.1", "0.5", codec("topk")}),
      on(2, {"compression.rank", weights, "4", "1", codec("powersgd")}),
      on(2, {"compression.min_compression", weights, "1", "1000", codec("powersgd")}),
      on(2, {"compression.start_step", weights, "0", "9", {"compression.type=sign"}}),
      on(2, {"compression.error_feedback", weights, "true", "false", codec("topk")}),
      on(2, {"compression.clip", weights, "own", "mean", codec("topk", {"gradient_clipping=0.1"})}),
      named("compression.max_residual", "train_exchange.auto_saves_its_choice_and_goes_on"),
      named("compression.decide_every", "train_exchange.auto_saves_its_choice_and_goes_on"),
      on(2, {"compression.warm_start", weights, "true", "false",
             codec("powersgd", {"compression.rank=1"})}),
      on(2, {"averaging.type", weights, "none", "diloco"}),
      on(2, {"averaging.period", weights, "1", "3", averaging("local_sgd")}),
      on(2, {"averaging.start_step", weights, "0", "3", averaging("local_sgd")}),
      on(2, {"averaging.near", weights, "1", "2", averaging("local_sgd")}),
      on(8, {"averaging.group_sizes", weights, "[2,8]", "[4,8]",
             averaging("hierarchical", {"averaging.periods=[1,2]"})}),
      on(4, {"averaging.periods", weights, "[1,2]", "[1,4]",
             averaging("hierarchical", {"averaging.group_sizes=[2,4]"})}),
      on(2, {"averaging.outer_lr", weights, "0.7", "0.1",
             averaging("diloco", {"averaging.period=1"})}),
      on(2, {"averaging.outer_momentum", weights, "0.9", "0.1",
             averaging("diloco", {"averaging.period=1"})}),
      on(2, {"averaging.nesterov", weights, "true", "false",
             averaging("diloco", {"averaging.period=1"})}),
      on(2, {"averaging.compression", weights, "none", "sign",
             averaging("diloco", {"averaging.period=1"})}),

      {"fp16.enabled", weights, "false", "true", {}},
      named("fp16.emulate", "train_precision.emulation_keeps_float16_and_computes_in_float32"),
      {"fp16.loss_scale", scale, "0", "128", half},
      {"fp16.initial_scale_power", scale, "8", "9", half},
      {"fp16.loss_scale_window", scale, "1000", "1", half + Sets{"fp16.initial_scale_power=4"}},
      {"fp16.hysteresis", scale, "1", "9", half + Sets{"fp16.initial_scale_power=60"}},
      named("fp16.consecutive_hysteresis",
            "optim_loss_scale.equals_deepspeeds_rule_on_every_sequence_of_ten_steps"),
      {"fp16.min_loss_scale", refused, "1", "1e30", half},
      {"bf16.enabled", weights, "false", "true"},
      {"amp.enabled", weights, "false", "true", {"amp.opt_level=O2", "amp.dtype=bf16"}},
      {"amp.opt_level", weights, "O2", "O3", {"amp.enabled=true", "amp.dtype=bf16"}},
      named("amp.dtype", "train_precision.sections_and_presets_are_plans"),
      {"torch_autocast.enabled", weights, "false", "true"},
      named("torch_autocast.dtype", "train_precision.sections_and_presets_are_plans"),
      on(2, {"communication_data_type", weights, "fp32", "bf16"}),
      {"data_types.grad_accum_dtype", refused, "fp32", "bf16"},

      named("balance.mode", "train_balance.shares_follow_the_speed_of_ranks"),
      named("elastic.mode",
            "faults_in_place.a_rank_that_is_killed_again_and_again_leaves_the_bits_of_a_calm_run"),
      named("elastic.batch",
            "train_in_place.fewer_ranks_take_as_many_samples_or_fewer_at_a_lower_rate"),
      named("balance.every", "train_balance.shares_follow_the_speed_of_ranks"),
      named("balance.hysteresis", "data_balance_plan.noise_below_the_hysteresis_changes_nothing"),
      named("balance.min_samples", "train_balance.limits_of_a_rank_are_kept"),
      named("balance.max_share", "train_balance.limits_of_a_rank_are_kept"),
      named("balance.max_samples", "train_balance.limits_of_a_rank_are_kept"),
      named("balance.memory_backoff", "train_memory_backoff.without_it_out_of_memory_ends_the_run"),
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

  const char* disk = "shard_offload_checkpoint.its_bytes_are_those_of_state_in_memory";
  const std::pair<const char*, const char*> of_zero[] = {
      {"reduce_bucket_size", "planner_memory_plan.stages_and_their_keys_are_read"},
      {"stage3_prefetch_bucket_size",
       "shard_fully_sharded.units_after_the_first_step_are_asked_for_ahead"},
      {"stage3_param_persistence_threshold",
       "shard_fully_sharded.small_parameters_are_left_to_the_root"},
      {"stage3_max_live_parameters",
       "planner_memory.prefetch_and_live_parameters_bound_the_units_in_flight"},
      {"sub_group_size", "config_zero_keys.offload_to_disk_reads_its_keys"},
      {"offload_optimizer.device",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_optimizer.nvme_path",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_optimizer.buffer_count", disk},
      {"offload_optimizer.pipeline_read",
       "train_offload_trace.the_disk_reads_and_writes_while_the_rank_computes_and_steps"},
      {"offload_optimizer.pipeline_write",
       "train_offload_trace.the_disk_reads_and_writes_while_the_rank_computes_and_steps"},
      {"offload_param.device",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_param.nvme_path",
       "train_resume.zero_with_its_state_on_disk_goes_on_with_the_same_bits"},
      {"offload_param.buffer_count", "config_zero_keys.offload_to_disk_reads_its_keys"},
      {"offload_param.buffer_size", "config_zero_keys.offload_to_disk_reads_its_keys"},
      {"offload_param.max_in_cpu", "config_zero_keys.offload_to_disk_reads_its_keys"}};
  static std::vector<std::string> paths;
  paths.clear();
  paths.reserve(std::size(of_zero));
  for (const auto& [name, test] : of_zero) {
    paths.push_back(std::string("zero_optimization.") + name);
    all.push_back(named(paths.back().c_str(), test));
  }
  all.push_back(on(2, {"zero_optimization.stage", words, "0", "2"}));
  all.push_back(on(2, {"zero_optimization.share_weights", words, "false", "true", zero(1)}));
  all.push_back(on(4, {"zero_optimization.zero_hpz_partition_size", words, "1", "2", zero(3)}));
  all.push_back(on(4, {"zero_optimization.mics_shard_size", words, "-1", "2", zero(3)}));
  all.push_back(named("aio.block_size", disk));
  all.push_back(named("aio.queue_depth", disk));
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
