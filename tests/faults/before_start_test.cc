// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/paths.h"

// What is said, refused and heard before the first step.
namespace trireme::testing::before_start_test {
namespace {

namespace fs = std::filesystem;

class faults_before_start : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }
  Command start(Arguments words, const Environment& env = {}) {
    return Command(trireme(std::move(words)), {env, folder_.path()});
  }
  PrivateFolder folder_;
};

TEST_F(faults_before_start, a_model_of_terabytes_is_refused_at_once) {
  const auto begin = Clock::now();
  Arguments words{"train",
                  trireme::testing::source_path("/examples/gpt.json"),
                  "--nproc-per-node",
                  "2",
                  "--set",
                  "model.layers=96",
                  "--set",
                  "model.width=100000",
                  "--set",
                  "model.heads=100",
                  "--set",
                  "data.type=dummy"};
  Command train = start(words);
  expect_refusal(train, 1, {"2 ranks need ", "TiB", "has ", "GiB", "--force", "smaller model"});
  EXPECT_LT(seconds_since(begin), 5 * kSlack);
  EXPECT_FALSE(fs::exists(folder_ / "runs")) << "a refused run left a folder";

  words[0] = "summary";
  Command summary = start(words);
  EXPECT_EQ(summary.finish(), 0) << summary.err;
  EXPECT_NE(summary.out.find("On this machine: 2 ranks need "), std::string::npos) << summary.out;
  EXPECT_NE(summary.out.find("`trireme train` refuses it"), std::string::npos) << summary.out;

  words.erase(words.begin());
  words.insert(words.begin(), {"config", "check"});
  Command check = start(words);
  expect_refusal(check, 2, {"2 ranks need ", "TiB"});
}

TEST_F(faults_before_start, copies_on_the_next_host_are_refused_where_there_is_none_to_go_on) {
  const auto refused = [&](Arguments nodes, const Environment& env, const char* why) {
    Arguments words{"train",     "tiny.json",
                    "--run-dir", "run",
                    "--set",     "checkpoint.snapshot_every=2",
                    "--set",     "checkpoint.neighbour=true"};
    words.insert(words.end(), nodes.begin(), nodes.end());
    Command train = start(words, env);
    expect_refusal(train, 2, {"checkpoint.neighbour is true", why});
  };
  refused({"--nproc-per-node=2"}, {}, "one host has no other to copy to");
  refused({"--nnodes=2", "--master-addr=localhost"}, {}, "--nnodes=2 ends with the first host");
  refused({},
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}},
          "makes no copies on other hosts");
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "a refused run left a folder";
}

TEST_F(faults_before_start, config_check_says_what_train_would_refuse) {
  write(folder_ / "gpt.json", kTinyGpt);  // its corpus is not there
  const std::pair<Arguments, std::vector<std::string>> rows[] = {
      {{"tiny.json", "--set", "parallelism.dp=3"}, {"parallelism.dp is 3", "2 ranks"}},
      {{"tiny.json", "--set", "zero_optimization.stage=2", "--set", "parallelism.dp_shard=3"},
       {"does not divide 2 ranks"}},
      {{"tiny.json", "--set", "train_batch_size=7"}, {"train_batch_size", "7"}},
      {{"tiny.json", "--set", "data.type=corpus"}, {"does not suit", "mlp"}},
      {{"tiny.json", "--set", "device=gpu"}, {"device is \"gpu\": use auto, cpu, cuda"}},
      {{"gpt.json"}, {"corpus.txt", "does not exist"}},
      {{"gpt.json", "--set", "data.type=dummy", "--set", "parallelism.tp=4"},
       {"parallelism.tp 4 (--set) does not divide 2 ranks"}},
      {{"gpt.json", "--set", "data.type=dummy", "--set", "parallelism.tp=2", "--set",
        "model.heads=1"},
       {"parallelism.tp 2 (--set): 1 query heads do not divide among 2 tensor-parallel ranks"}},
      {{"gpt.json", "--set", "data.type=dummy", "--set", "parallelism.pp=2", "--set",
        "model.layers=1"},
       {"parallelism.pp 2 (--set)", "2 stages, and the model has 1 blocks"}},
      {{"tiny.json", "--set", "parallelism.tp=2"},
       {"model.type is \"mlp\"", "parallelism.tp 2 (--set)", "only gpt can be divided"}},
  };
  for (const auto& [words, parts] : rows) {
    for (const char* verb : {"check", "train"}) {
      Arguments all = words;
      all.insert(all.begin(), verb);
      if (all[0] == "check") all.insert(all.begin(), "config");
      all.insert(all.end(), {"--nproc-per-node", "2"});
      Command command = start(all);
      expect_refusal(command, 2, parts);
    }
  }
  Command fine = start({"config", "check", "tiny.json", "--nproc-per-node", "2"});
  EXPECT_EQ(fine.finish(), 0) << fine.err;
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(faults_before_start, a_line_is_there_while_the_model_is_built) {
  Command train = start({"train", "tiny.json", "--nproc-per-node", "2", "--run-dir", "run"});
  ASSERT_EQ(train.finish(), 0) << train.err;
  EXPECT_NE(train.err.find("building mlp with 172 parameters; 2 ranks need "), std::string::npos)
      << train.err;
  EXPECT_LT(train.err.find("building "), train.err.find("samples a step"));
}

TEST_F(faults_before_start, signals_are_answered_while_the_model_is_built) {
  for (int signal : {SIGINT, SIGTERM}) {
    Command train = start({"train", "tiny.json", "--nproc-per-node", "2"},
                          {{"TRIREME_FAILPOINTS", "train.build=sleep(120000)"}});
    ASSERT_TRUE(train.wait_for("building ")) << train.err;
    ASSERT_GT(train.rank(1), 0);
    train.read_for(milliseconds(500));
    const auto begin = Clock::now();
    train.send(signal);
    EXPECT_EQ(train.finish(seconds(60)), 128 + signal) << train.err;
    EXPECT_LT(seconds_since(begin), 5 * kSlack);
    EXPECT_FALSE(fs::exists(folder_ / "runs")) << "nothing was done, and a folder is left";
    EXPECT_TRUE(train.left_nothing());
  }
}

TEST_F(faults_before_start, memory_that_cannot_be_had_is_one_sentence_with_the_rank) {
  // 1 GiB of weights, under a limit that LibTorch itself fits in.
  write(folder_ / "wide.json",
        tiny_mlp_with(R"({"model": {"inputs": 16384, "hidden": [16384], "outputs": 4}})"));
  Command train(
      {"sh", "-c",
       "ulimit -v 3000000; exec " + trireme_program() + " train wide.json --run-dir run --force"},
      {{{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}}, folder_.path()});
  expect_refusal(train, 1, {"rank 0 ran out of memory", "ulimit -v is ", "trireme summary"});
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

}  // namespace
}  // namespace trireme::testing::before_start_test
