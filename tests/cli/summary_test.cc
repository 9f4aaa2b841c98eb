// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::testing::summary_test {
namespace {

Arguments summary(const Arguments& more) {
  Arguments words = trireme({"summary"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::string kExamples = trireme::testing::source_path("/examples/");

TEST(cli_summary, prints_lightnings_table_and_the_plan) {
  Command command(summary({kExamples + "convnet.json"}));
  ASSERT_EQ(command.finish(), 0) << command.err;
  EXPECT_EQ(command.out.rfind("  | Name     | Type    | Params\n"
                              "-------------------------------------\n"
                              "0 | conv1    | Conv2d  | 320\n",
                              0),
            0u)
      << command.out;
  EXPECT_TRUE(has(command.out, "4.800     Total estimated model params size (MB)\n"));
  for (const char* row :
       {"weights ", "gradients ", "optimizer ", "activations ", "buffers ", "total "})
    EXPECT_TRUE(has(command.out, std::string("\n") + row)) << row;
  EXPECT_TRUE(has(command.out, "predicted\n"));
  EXPECT_FALSE(has(command.out, "measured"));
}

TEST(cli_summary, counts_the_snapshots_of_asynchronous_checkpoints) {
  for (const bool async : {false, true}) {
    Arguments words{kExamples + "convnet.json", "--set", "checkpoint.every=10", "--set",
                    std::string("checkpoint.async=") + (async ? "true" : "false")};
    Command text(summary(words));
    ASSERT_EQ(text.finish(), 0) << text.err;
    EXPECT_EQ(has(text.out, "\nsnapshots "), async) << text.out;
    EXPECT_EQ(has(text.out, "checkpoints while training goes on"), async) << text.out;
    words.insert(words.end(), {"--json", "-"});
    Command json_of(summary(words));
    ASSERT_EQ(json_of.finish(), 0) << json_of.err;
    const auto m = nlohmann::json::parse(json_of.out).at("predicted");
    int64_t sum = 0;
    for (const char* row : {"weights", "gradients", "optimizer", "activations", "buffers"})
      sum += m.at(row).get<int64_t>();
    EXPECT_EQ(m.contains("snapshots"), async);
    const int64_t snapshots = m.value("snapshots", int64_t{0});
    EXPECT_EQ(m.at("total"), sum + snapshots);
    if (async) {
      EXPECT_EQ(snapshots, 2 * (m.at("weights").get<int64_t>() + m.at("optimizer").get<int64_t>()));
    }
  }
}

TEST(cli_summary, plans_for_more_ranks_than_this_machine_has) {
  Command command(
      summary({kExamples + "gpt.json", "--nproc-per-node", "64", "--set",
               "zero_optimization.stage=3", "--set", "bf16.enabled=true", "--json", "-"}));
  ASSERT_EQ(command.finish(), 0) << command.err;
  const auto json = nlohmann::json::parse(command.out);
  EXPECT_EQ(json.at("dp_shard"), 64);
  const int64_t n = json.at("parameters");
  EXPECT_NEAR(json.at("predicted").at("optimizer").get<double>(),
              12.0 * static_cast<double>(n) / 64,
              12.0 * 7 * 1024);  // padding of seven units
}

TEST(cli_summary, says_how_the_ranks_divide_the_model_and_what_a_rank_then_holds) {
  const auto figures = [](int ranks, const char* tp) {
    Command command(summary({kExamples + "gpt.json", "--nproc-per-node", std::to_string(ranks),
                             "--set", std::string("parallelism.tp=") + tp, "--json", "-"}));
    EXPECT_EQ(command.finish(), 0) << command.err;
    return nlohmann::json::parse(command.out);
  };
  const auto whole = figures(1, "1"), divided = figures(4, "2");
  EXPECT_EQ(whole.at("tp"), 1);
  EXPECT_EQ(divided.at("dp"), 2);
  EXPECT_EQ(divided.at("tp"), 2);
  EXPECT_EQ(divided.at("pp"), 1);
  EXPECT_EQ(divided.at("parameters"), whole.at("parameters"));
  for (const char* row : {"weights", "gradients", "optimizer"}) {
    const double part = divided.at("predicted").at(row), all = whole.at("predicted").at(row);
    EXPECT_NEAR(part / all, 0.5, 0.02) << row;
  }
  Command text(summary({kExamples + "gpt.json", "--nproc-per-node", "4", "--set",
                        "parallelism.tp=2", "--set", "parallelism.sequence_parallel=true"}));
  ASSERT_EQ(text.finish(), 0) << text.err;
  EXPECT_TRUE(has(text.out,
                  "\nMemory of the fullest rank: 2 ranks of data parallelism × 2 of tensor and "
                  "sequence parallelism; no ZeRO; "))
      << text.out;
}

TEST(cli_summary, each_rank_of_a_pipeline_has_a_row) {
  const Arguments words{
      kExamples + "gpt.json",         "--nproc-per-node", "2", "--set", "parallelism.pp=2", "--set",
      "gradient_accumulation_steps=4"};
  Command text(summary(words));
  ASSERT_EQ(text.finish(), 0) << text.err;
  const size_t table = text.out.find("\nEach rank of the pipeline, predicted:\n\npp rank blocks");
  ASSERT_NE(table, std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n0       embedding, 0-2", table), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n1       3-5, head", table), std::string::npos) << text.out;
  Arguments as_json = words;
  as_json.insert(as_json.end(), {"--json", "-"});
  Command json(summary(as_json));
  ASSERT_EQ(json.finish(), 0) << json.err;
  const auto rows = nlohmann::json::parse(json.out).at("pipeline");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].at("blocks"), "3-5, head");
  EXPECT_GT(rows[0].at("activations"), rows[1].at("activations").get<int64_t>() / 2);
  EXPECT_GT(rows[0].at("total"), 0);
}

TEST(cli_summary, each_virtual_stage_has_a_row) {
  const Arguments words{kExamples + "gpt.json",
                        "--nproc-per-node",
                        "2",
                        "--set",
                        "parallelism.pp=2",
                        "--set",
                        "gradient_accumulation_steps=4",
                        "--set",
                        "parallelism.schedule=zb_v",
                        "--set",
                        "model.tied_head=false"};
  Command text(summary(words));
  ASSERT_EQ(text.finish(), 0) << text.err;
  const size_t table = text.out.find("\nEach stage, of its rank's memory:\n\nstage pp rank blocks");
  ASSERT_NE(table, std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n0     0       embedding, 0", table), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n2     1 ", table), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n3     0       ", table), std::string::npos) << text.out;
  Arguments as_json = words;
  as_json.insert(as_json.end(), {"--json", "-"});
  Command json(summary(as_json));
  ASSERT_EQ(json.finish(), 0) << json.err;
  const auto ranks = nlohmann::json::parse(json.out).at("pipeline");
  ASSERT_EQ(ranks.at(0).at("stages").size(), 2u);
  EXPECT_EQ(ranks[0].at("stages")[1].at("stage"), 3);
  EXPECT_EQ(ranks[0].at("stages")[0].at("weights").get<int64_t>() +
                ranks[0].at("stages")[1].at("weights").get<int64_t>(),
            ranks[0].at("weights").get<int64_t>());
}

TEST(cli_summary, what_is_wrong_is_one_sentence_and_code_2) {
  const std::pair<Arguments, const char*> rows[] = {
      {{}, "name a configuration"},
      {{kExamples + "gpt.json", "--mesure"}, "did you mean --measure?"},
      {{kExamples + "gpt.json", "--measure=1"}, "takes no value"},
      {{kExamples + "gpt.json", "--set"}, "--set needs a value"},
      {{kExamples + "none.json"}, "none.json"},
      {{kExamples + "gpt.json", "--set", "zero_optimization.stag=1"}, "zero_optimization.stage"},
      {{kExamples + "gpt.json", "--nproc-per-node", "4", "--set", "zero_optimization.stage=2",
        "--set", "parallelism.dp_shard=3"},
       "does not divide 4 ranks"},
      {{kExamples + "gpt.json", "--nproc-per-node", "4", "--set", "parallelism.tp=4"},
       "parallelism.tp 4 (--set): 6 query heads do not divide among 4 tensor-parallel ranks"},
      {{kExamples + "gpt.json", "--nproc-per-node", "3", "--set", "parallelism.tp=2"},
       "parallelism.tp 2 (--set) does not divide 3 ranks"},
  };
  for (const auto& [words, part] : rows) {
    Command command(summary(words));
    EXPECT_EQ(command.finish(), 2) << part;
    EXPECT_TRUE(has(command.err, part)) << command.err;
    EXPECT_EQ(command.out, "");
  }
  Command help(summary({"--help"}));
  EXPECT_EQ(help.finish(), 0);
  EXPECT_TRUE(has(help.out, "--measure"));
}

TEST(cli_summary, measures_what_it_predicts) {
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  PrivateFolder folder;
  Command command(summary({kExamples + "gpt_small.json", "--set", "data.type=dummy",
                           "--nproc-per-node", "2", "--measure", "--json", folder / "m.json"}));
  ASSERT_EQ(command.finish(), 0) << command.err;
  EXPECT_TRUE(has(command.out, "measured\n")) << command.out;
  EXPECT_TRUE(has(command.out, "resident, all ranks together")) << command.out;
  const auto json = nlohmann::json::parse(read_file(folder / "m.json"));
  for (const char* part : {"weights", "gradients", "optimizer"}) {
    const double predicted = json.at("predicted").at(part), measured = json.at("measured").at(part);
    EXPECT_NEAR(measured / predicted, 1, 0.02) << part;
  }
  const double predicted = json.at("predicted").at("total"),
               measured = json.at("measured").at("total");
  EXPECT_NEAR(measured / predicted, 1, 0.2);
  EXPECT_TRUE(command.left_nothing());
}

TEST(cli_summary, measures_the_snapshots_that_a_rank_makes) {
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  for (const char* stage : {"zero_optimization.stage=0", "zero_optimization.stage=2"}) {
    Command command(summary({kExamples + "gpt_small.json",
                             "--set",
                             "data.type=dummy",
                             "--set",
                             "model.width=256",
                             "--set",
                             "train_micro_batch_size_per_gpu=1",
                             "--set",
                             "gradient_accumulation_steps=1",
                             "--set",
                             stage,
                             "--set",
                             "checkpoint.async=true",
                             "--set",
                             "checkpoint.every=9",
                             "--nproc-per-node",
                             "2",
                             "--measure",
                             "--json",
                             "-"}));
    ASSERT_EQ(command.finish(), 0) << command.err;
    const auto json = nlohmann::json::parse(command.out);
    const double predicted = json.at("predicted").at("snapshots"),
                 measured = json.at("measured").at("snapshots");
    EXPECT_NEAR(measured / predicted, 1, 0.05) << stage;
  }
}

TEST(cli_summary, measures_what_compression_and_averaging_keep) {
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  for (const char* kind : {"compression.type=int8", "averaging.type=diloco"}) {
    Command command(summary({kExamples + "gpt_small.json", "--set", "data.type=dummy", "--set",
                             "model.width=256", "--set", "train_micro_batch_size_per_gpu=1",
                             "--set", "gradient_accumulation_steps=1", "--set", kind,
                             "--nproc-per-node", "2", "--measure", "--json", "-"}));
    ASSERT_EQ(command.finish(), 0) << command.err;
    const auto json = nlohmann::json::parse(command.out);
    const double weights = json.at("measured").at("weights"),
                 predicted = json.at("predicted").at("buffers"),
                 measured = json.at("measured").at("buffers");
    EXPECT_GT(predicted, 2 * weights) << kind;
    EXPECT_NEAR(measured / predicted, 1, 0.12) << kind;
  }
}

}  // namespace
}  // namespace trireme::testing::summary_test
