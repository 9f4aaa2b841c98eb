// SPDX-License-Identifier: Apache-2.0
// What does not go with a model that is divided over ranks, and what is said.
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"
#include "trireme/config/resolved.h"

namespace parallelism_rules_test {

using namespace trireme;
using namespace trireme::testing;
using trireme::testing::has;

namespace {

const char kBase[] = R"({"train_batch_size": 8})";

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Refused {
  Sets sets;
  std::string is;   // "compression.type is "int8""
  std::string why;  // behind the axis
};

const std::vector<Refused>& of_both_axes() {
  static const std::vector<Refused> rows = {
      {{"model.type=mlp"},
       R"(model.type is "mlp")",
       "only gpt can be divided over ranks; use it, or 1"},
      {{"compression.type=int8"},
       R"(compression.type is "int8")",
       "codecs are for ranks with the same parameters; use none"},
      {{"averaging.type=local_sgd"},
       R"(averaging.type is "local_sgd")",
       "ranks of one model cannot step separately; use none"},
      {{"balance.mode=throughput"},
       R"(balance.mode is "throughput")",
       "ranks of one model cannot take different shares; use none"},
      {{"comm.tune_buckets=true"},
       "comm.tune_buckets is true",
       "ranks of one model have different buckets; use false"},
      {{"comm.strategy=adasum"},
       R"(comm.strategy is "adasum")",
       "ranks of one model have different parameters; use all_reduce"},
      {{"monitor.gradient_noise_scale=true"},
       "monitor.gradient_noise_scale is true",
       "it compares gradients of the whole model, of which ranks hold parts; use false"},
      {{"training.find_unused_parameters=true"},
       "training.find_unused_parameters is true",
       "the parts of the built-in models are all used; use false"},
      {{"fp16.enabled=true", "fp16.emulate=true"},
       "fp16.emulate is true",
       "it copies the weights beside the model; use bf16, or fp16 without emulate"},
  };
  return rows;
}

const Sets kParametersInFiles = {"zero_optimization.stage=3",
                                 "zero_optimization.offload_param.device=nvme",
                                 "zero_optimization.offload_param.nvme_path=/x",
                                 "zero_optimization.offload_optimizer.device=nvme",
                                 "zero_optimization.offload_optimizer.nvme_path=/x"};

const Sets kDocuments = {"data.type=documents", "data_efficiency.enabled=true",
                         "data_efficiency.data_sampling.enabled=true",
                         "data_efficiency.data_sampling.dynamic_batching.enabled=true",
                         "data_efficiency.data_sampling.dynamic_batching.max_tokens=512"};

void expect_refused(const std::string& axis, const Refused& row) {
  EXPECT_EQ(error_of(kBase, row.sets), "") << row.is << " alone";
  const Sets sets = row.sets + Sets{axis + "=2"};
  const std::string text = error_of(kBase, sets);
  EXPECT_TRUE(has(text, "--set: " + row.is + ", and " + axis + " 2 (--set): " + row.why))
      << row.is << "\n"
      << text;
  EXPECT_EQ(error_of(kBase, row.sets + Sets{axis + "=1"}), "") << row.is;
}

}  // namespace

TEST(config_parallelism_rules, what_is_for_whole_models_is_refused_beside_each_axis) {
  for (const char* axis : {"parallelism.tp", "parallelism.pp"})
    for (const Refused& row : of_both_axes()) expect_refused(axis, row);
}

TEST(config_parallelism_rules, what_counts_ranks_by_their_samples_is_refused_beside_cp) {
  const std::string reasons[] = {"only gpt has positions to divide; use it, or 1",
                                 "a codec clips by each rank's own weight, and ranks of one row "
                                 "have one together; use none",
                                 "ranks that have parts of the same samples cannot step "
                                 "separately; use none",
                                 "ranks that have parts of the same samples cannot take different "
                                 "shares; use none",
                                 "it times what ranks with different samples send; use false",
                                 "gradients of parts of a sample are to be added; use all_reduce",
                                 "it compares gradients of different samples, of which these ranks "
                                 "have parts; use false",
                                 "the built-in gpt uses all of them; use false",
                                 "it copies the weights beside the model; use bf16, or fp16 "
                                 "without emulate"};
  size_t row = 0;
  for (Refused refused : of_both_axes()) {
    refused.why = reasons[row++];
    expect_refused("parallelism.cp", refused);
  }
  expect_refused("parallelism.cp",
                 {kParametersInFiles, R"(zero_optimization.offload_param.device is "nvme")",
                  "files are for ranks that read different samples; use none"});
  EXPECT_TRUE(has(error_of(kBase, {"training.reproducible=true", "parallelism.cp=2"}),
                  "training.reproducible is true, and parallelism.cp 2 (--set): the gradients of a "
                  "leaf are sums over its ranks"));
  for (const char* fine : {"optimizer.type=Adafactor", "zero_optimization.stage=3",
                           "training.activation_memory_mb=64", "parallelism.pp=2"})
    EXPECT_EQ(error_of(kBase, {fine, "parallelism.cp=2"}), "") << fine;
  EXPECT_EQ(error_of(kBase, kDocuments + Sets{"parallelism.cp=2"}), "");
}

TEST(config_parallelism_rules, what_is_for_whole_matrices_is_refused_beside_tp_alone) {
  expect_refused("parallelism.tp",
                 {{"optimizer.type=Adafactor"},
                  R"(optimizer.type is "Adafactor")",
                  "its state is factored over whole matrices, of which ranks hold parts; use "
                  "another optimizer"});
  expect_refused("parallelism.tp",
                 {kParametersInFiles, R"(zero_optimization.offload_param.device is "nvme")",
                  "files hold whole parameters, of which ranks hold parts; use none"});
  EXPECT_EQ(error_of(kBase, {"optimizer.type=Adafactor", "parallelism.pp=2"}), "");
  for (const char* stage : {"1", "2", "3"})
    EXPECT_EQ(
        error_of(kBase, {std::string("zero_optimization.stage=") + stage, "parallelism.tp=2"}), "");
  EXPECT_EQ(error_of(kBase, {"training.activation_memory_mb=64", "parallelism.tp=2"}), "");
  EXPECT_EQ(error_of(kBase, kDocuments + Sets{"parallelism.tp=2"}), "");
}

TEST(config_parallelism_rules, what_a_schedule_cannot_do_is_refused_beside_pp) {
  const std::string pp = "parallelism.pp";
  expect_refused(pp, {{"training.activation_memory_mb=64"},
                      "training.activation_memory_mb is 64.0",
                      "how many micro-batches a rank keeps depends on its stage; use "
                      "recompute_every"});
  expect_refused(pp, {kDocuments, "data_efficiency.data_sampling.dynamic_batching.enabled is true",
                      "the schedule is for one number of micro-batches; use false"});
  for (const char* schedule : {"1f1b", "interleaved_1f1b", "breadth_first", "zb_v", "dualpipe_v"})
    for (const char* stage : {"0", "1", "2", "3"})
      for (const char* reproducible : {"false", "true"})
        EXPECT_EQ(error_of(kBase, {std::string("parallelism.schedule=") + schedule,
                                   "model.tied_head=false", "parallelism.pp=2",
                                   std::string("zero_optimization.stage=") + stage,
                                   std::string("training.reproducible=") + reproducible}),
                  "")
            << schedule << ", stage " << stage;
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_h2", "zb_2p", "zb_v", "dualpipe_v"}) {
    const std::string name = std::string("parallelism.schedule=") + schedule;
    for (const char* set :
         {"zero_optimization.stage=2", "training.reproducible=true", "model.tied_head=true"})
      EXPECT_EQ(error_of(kBase, {name, set, "parallelism.pp=2"}), "") << schedule << " " << set;
  }
}

TEST(config_parallelism_rules, replicas_that_step_separately_are_not_compared) {
  EXPECT_TRUE(has(error_of(kBase, {"training.check_replicas=10", "averaging.type=diloco"}),
                  "training.check_replicas is 10, and averaging.type is \"diloco\" (--set): ranks "
                  "that step separately hold different parameters; use 0"));
  EXPECT_EQ(error_of(kBase, {"training.check_replicas=10"}), "");
}

TEST(config_parallelism_rules, stages_are_given_or_measured) {
  const Sets measured = {"parallelism.pp=2", "parallelism.partition_method=measured"};
  EXPECT_EQ(error_of(kBase, measured), "");
  Sets both = measured;
  both.push_back("parallelism.stages=[2,4]");
  EXPECT_TRUE(has(error_of(kBase, both),
                  "parallelism.partition_method is measured, and parallelism.stages (--set) says "
                  "which blocks each stage has: leave one of them out"))
      << error_of(kBase, both);
}

TEST(config_parallelism_rules, a_table_says_all_of_a_schedule) {
  const Sets file = {"parallelism.pp=2", "parallelism.schedule_file=t.csv"};
  EXPECT_EQ(error_of(kBase, file), "");
  EXPECT_EQ(error_of(kBase, file + Sets{"parallelism.virtual_stages=0"}), "");
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"parallelism.schedule", "\"gpipe\""},
                                                        {"parallelism.schedule", "\"1f1b\""},
                                                        {"parallelism.virtual_stages", "2"}}) {
    const std::string text = error_of(kBase, file + Sets{key + "=" + value});
    EXPECT_TRUE(has(text, "parallelism.schedule_file is \"t.csv\", and " + key + " is " + value +
                              " (--set): a table says all of a schedule, so leave one of them out"))
        << text;
  }
  // Ranks get every key, also those that nobody gave.
  const Config given = config(kBase, file);
  EXPECT_EQ(load_resolved(given.to_json()).value_text("parallelism.schedule_file"), "\"t.csv\"");
}

TEST(config_parallelism_rules, keys_of_an_axis_without_it_have_no_effect_and_that_is_said) {
  const Files files{R"({"train_batch_size": 8, "parallelism": {"sequence_parallel": true,
                        "schedule": "zb_h1", "virtual_stages": 1, "stages": [3, 3],
                        "partition_method": "uniform"}})"};
  const auto idle = [&](const char* key, const Sets& sets) {
    const auto inspection = files.inspect(sets);
    EXPECT_TRUE(inspection.ok());
    const KeyReport* report = find(inspection, key);
    return report && report->verdict == KeyReport::Verdict::without_effect ? report->why : "";
  };
  for (const char* key : {"parallelism.schedule", "parallelism.virtual_stages",
                          "parallelism.stages", "parallelism.partition_method"}) {
    EXPECT_EQ(idle(key, {}), "has no effect without parallelism.pp");
    EXPECT_EQ(idle(key, {"parallelism.pp=2"}), "");
  }
  EXPECT_EQ(idle("parallelism.whole_stages", {"parallelism.whole_stages=1"}),
            "has no effect without parallelism.pp");
  EXPECT_EQ(idle("parallelism.schedule_file", {"parallelism.schedule_file=t.csv"}),
            "has no effect without parallelism.pp");
  EXPECT_EQ(idle("parallelism.sequence_parallel", {}), "has no effect without parallelism.tp");
  EXPECT_EQ(idle("parallelism.sequence_parallel", {"parallelism.tp=2"}), "");
}

}  // namespace parallelism_rules_test
