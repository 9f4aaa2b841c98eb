// SPDX-License-Identifier: Apache-2.0
// The programs under examples/ that other systems' first pages have, each started as README says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/ports.h"
#include "trireme/base/file.h"

namespace trireme::testing::examples_test {
namespace {

std::string program(const std::string& name) {
  return trireme::testing::build_path("/examples/") + name;
}

class cli_examples : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  }

  static Arguments command(const std::string& name, int ranks, const Arguments& more = {}) {
    Arguments words = trireme({"run", "--nproc-per-node", std::to_string(ranks), program(name)});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// What a program says on so many ranks.
  static std::string said(const std::string& name, int ranks, const Arguments& more = {}) {
    Command running(command(name, ranks, more));
    EXPECT_EQ(running.finish(std::chrono::seconds(120)), 0) << running.out << running.err;
    return running.out;
  }
};

/// The numbers that follow `words`, in their order.
std::vector<double> numbers_after(const std::string& words, const std::string& out) {
  std::vector<double> numbers;
  for (size_t at = out.find(words); at != std::string::npos; at = out.find(words, at + 1))
    numbers.push_back(std::atof(out.c_str() + at + words.size()));
  return numbers;
}

TEST_F(cli_examples, ddp_mlp_learns_in_10_epochs_on_4_ranks_as_on_one) {
  const std::string four = said("ddp_mlp", 4);
  for (int epoch = 0; epoch < 10; ++epoch)
    EXPECT_NE(four.find("Epoch " + std::to_string(epoch) + " completed"), std::string::npos);
  EXPECT_EQ(std::count(four.begin(), four.end(), '\n'), 10) << "rank 0 alone prints: " << four;
  const auto losses = numbers_after("loss ", four);
  ASSERT_EQ(losses.size(), 10u) << four;
  EXPECT_TRUE(std::is_sorted(losses.rbegin(), losses.rend())) << four;
  EXPECT_LT(losses.back(), losses.front() - 0.4) << four;
  EXPECT_NE(said("ddp_mlp", 1).find("Epoch 9 completed"), std::string::npos);
}

const char kDsConfig[] = "/examples/deepspeed_mlp/ds_config.json";

TEST_F(cli_examples, deepspeed_mlp_learns_by_its_ds_config_on_4_ranks) {
  const std::string out = said("deepspeed_mlp", 4, {trireme::testing::source_path(kDsConfig)});
  const auto losses = numbers_after("loss ", out);
  ASSERT_EQ(numbers_after("Epoch ", out).size(), 10u) << out;
  EXPECT_LT(losses[9], 1.0) << "2.3 is what guessing gives: " << out;
  EXPECT_NE(out.find("4 ranks, loss scale "), std::string::npos) << out;
  EXPECT_NE(out.find(" of 40 steps skipped"), std::string::npos) << "4 × 32 of 512: " << out;
}

TEST_F(cli_examples, the_ds_config_is_the_documents_and_fp16_emulate) {
  auto config = nlohmann::json::parse(read_file(trireme::testing::source_path(kDsConfig)));
  EXPECT_EQ(config["fp16"].erase("emulate"), 1u);
  EXPECT_EQ(config, nlohmann::json::parse(R"({"train_batch_size": 128,
      "optimizer": {"type": "Adam", "params": {"lr": 0.001}},
      "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}})"));
}

TEST_F(cli_examples, a_ds_config_of_ones_own_is_read_and_its_mistakes_are_told) {
  PrivateFolder folder;
  const std::string file = folder / "ds_config.json";
  write_file_atomic(file, R"({"train_batch_size": 64, "bf16": {"enabled": true},
    "optimizer": {"type": "Adam", "params": {"lr": 0.001}}, "zero_optimization": {"stage": 1}})");
  EXPECT_NE(said("deepspeed_mlp", 2, {file}).find("2 ranks, loss scale 1, 0 of "),
            std::string::npos);

  write_file_atomic(file, R"({"train_batch_size": 64, "zero_optimization": {"stagee": 1}})");
  Command wrong(command("deepspeed_mlp", 1, {file}));
  EXPECT_EQ(wrong.finish(std::chrono::seconds(60)), 1);
  EXPECT_NE((wrong.out + wrong.err).find("zero_optimization.stage"), std::string::npos)
      << wrong.out << wrong.err;
}

TEST_F(cli_examples, net_four_ranks_prints_a_line_each_100_steps_on_each_of_4_ranks) {
  const std::string out = said("net_four_ranks", 4);
  for (int rank = 0; rank < 4; ++rank) {
    double before = 0;
    for (const char* step : {"100", "200"}) {
      const auto loss =
          numbers_after("[" + std::to_string(rank) + " " + step + "/200] loss: ", out);
      ASSERT_EQ(loss.size(), 1u) << out;
      EXPECT_LT(loss[0], 3.0) << out;
      before = loss[0];
    }
    EXPECT_LT(before, 2.0) << "2.3 is what guessing gives: " << out;
  }
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 8) << out;
}

TEST_F(cli_examples, the_tutorial_on_distributed_applications_runs_on_two_backends) {
  std::vector<double> losses;
  for (const char* backend : {"local", "gloo"}) {
    const std::string out = said("writing_distributed_applications", 4, {backend});
    for (const char* line : {"Rank 1 has data 1\n", "Rank 1 has data 2\n",
                             "Rank 0 has data 2 of its group\n", "Rank 1 has data 2 of its group\n",
                             "Rank 2 has data 1 of its group\n", "Gathered 6, broadcast 0\n"})
      EXPECT_NE(out.find(line), std::string::npos) << backend << ": " << line << out;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string name = "Rank " + std::to_string(rank);
      EXPECT_NE(out.find(name + ": the ring's sum is all_reduce's: yes\n"), std::string::npos)
          << out;
      const auto first = numbers_after(name + ", epoch 0: ", out),
                 last = numbers_after(name + ", epoch 4: ", out);
      ASSERT_EQ(first.size() + last.size(), 2u) << out;
      EXPECT_LT(last[0], first[0]) << out;
      losses.push_back(last[0]);
    }
  }
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_NEAR(losses[rank], losses[rank + 4], 1e-3);
}

TEST_F(cli_examples, what_two_ranks_saved_one_loads_and_what_python_saved_too) {
  PrivateFolder folder;
  const std::string run = folder / "saved";
  const std::string two = said("saving_loading", 2, {run});
  EXPECT_EQ(two.find(": no"), std::string::npos) << two;
  EXPECT_EQ(numbers_after(": yes", two).size(), 5u) << two;
  EXPECT_EQ(two.find("written by"), std::string::npos) << two;
  const std::string one = said("saving_loading", 1, {run});
  EXPECT_EQ(one.find(": no"), std::string::npos) << one;
  EXPECT_NE(one.find("epoch 5, loss "), std::string::npos) << one;
  EXPECT_NE(one.find(", written by 2 ranks\n"), std::string::npos) << one;

  const std::string weights = folder / "python.pt";
  Command python({"/usr/bin/python3", "-c",
                  "import sys, torch; torch.save({'fc1.weight': torch.full((16, 8), .5), "
                  "'fc1.bias': torch.zeros(16), 'fc2.weight': torch.zeros(10, 16), "
                  "'fc2.bias': torch.zeros(10)}, sys.argv[1])",
                  weights});
  if (python.finish(std::chrono::seconds(60)) != 0) GTEST_SKIP() << "without python3-torch";
  EXPECT_NE(said("saving_loading", 1, {run, weights}).find("weights from Python: yes\n"),
            std::string::npos);
}

TEST_F(cli_examples, an_elastic_job_that_loses_a_rank_ends_as_one_that_did_not) {
  PrivateFolder folder;
  const auto last_line = [](const std::string& out) {
    return out.substr(out.find("6 epochs, sum of weights "));
  };
  const std::string calm = said("elastic", 2, {folder / "calm", "6"});
  EXPECT_EQ(calm.find("Resuming"), std::string::npos) << calm;
  ASSERT_NE(calm.find("6 epochs, sum of weights "), std::string::npos) << calm;

  Command failing(trireme({"run", "--nproc-per-node", "2", "--max-restarts", "3",
                           program("elastic"), folder / "failing", "6", "3"}));
  EXPECT_EQ(failing.finish(std::chrono::seconds(120)), 0) << failing.out << failing.err;
  for (int rank : {0, 1})
    EXPECT_NE(failing.out.find("[rank " + std::to_string(rank) +
                               "] Resuming training from snapshot at epoch 3\n"),
              std::string::npos)
        << failing.out;
  EXPECT_EQ(numbers_after("| Training snapshot saved", failing.out).size(), 6u) << failing.out;
  ASSERT_NE(failing.out.find("6 epochs, sum of weights "), std::string::npos) << failing.out;
  EXPECT_EQ(last_line(failing.out), last_line(calm));

  // Without restarts the launcher says who died, and the same command goes on from the snapshot.
  Command dying(
      trireme({"run", "--nproc-per-node", "2", program("elastic"), folder / "dying", "6", "3"}));
  EXPECT_EQ(dying.finish(std::chrono::seconds(120)), 1) << dying.out << dying.err;
  EXPECT_NE(dying.err.find("SIGKILL"), std::string::npos) << dying.err;
  EXPECT_EQ(last_line(said("elastic", 2, {folder / "dying", "6"})), last_line(calm));
}

TEST_F(cli_examples, model_parallel_has_the_losses_of_one_process_naively_and_as_a_pipeline) {
  const std::string out = said("model_parallel", 2);
  const auto losses = [](const std::string& how, const std::string& from) {
    std::vector<double> found;
    for (int step = 1; step <= 5; ++step)
      for (const double loss :
           numbers_after(how + ": step " + std::to_string(step) + ", loss ", from))
        found.push_back(loss);
    return found;
  };
  const auto whole = losses("whole", said("model_parallel", 1));
  ASSERT_EQ(whole.size(), 5u);
  EXPECT_LT(whole[4], whole[0]);
  for (const char* how : {"naive", "pipeline"}) {
    const auto got = losses(how, out);
    ASSERT_EQ(got.size(), 5u) << out;
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(got[i], whole[i], 5e-5) << how << ": " << out;
  }
}

TEST_F(cli_examples, a_rare_class_is_drawn_as_often_as_the_others_on_4_ranks) {
  const std::string out = said("sampler_and_imbalance", 4);
  const auto plain = numbers_after("as they are: ", out),
             weighted = numbers_after("weighted: ", out),
             found = numbers_after("were eights, ", out);
  ASSERT_EQ(plain.size() + weighted.size() + found.size(), 4u) << out;
  EXPECT_LT(plain[0], 15) << out;
  EXPECT_NEAR(weighted[0], 50, 8) << out;
  EXPECT_GT(found[1], found[0] + 10) << out;
}

TEST_F(cli_examples, a_recommender_learns_at_two_servers_from_two_trainers) {
  const std::string start = "exec " + program("parameter_server/") + "$TRIREME_ROLE 2 2";
  Command running(trireme({"run", "--role", "server=2", "--role", "trainer=2", "sh", "-c", start}));
  ASSERT_EQ(running.finish(std::chrono::seconds(120)), 0) << running.out << running.err;
  const auto before = numbers_after("held-out loss ", running.out),
             after = numbers_after(" -> ", running.out);
  ASSERT_EQ(before.size() + after.size(), 2u) << running.out;
  EXPECT_LT(after[0], 0.8 * before[0]) << running.out;
  EXPECT_NE(running.out.find("server1 made 400 steps"), std::string::npos) << running.out;
}

// Three hosts with a rank each, as in the document: each has its own output.
TEST_F(cli_examples, lightning_look_prints_what_the_document_prints) {
  const std::string port = std::to_string(free_tcp_port());
  std::vector<std::unique_ptr<Command>> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.push_back(std::make_unique<Command>(Arguments{program("lightning_look")},
                                              CommandOptions{{{"RANK", std::to_string(r)},
                                                              {"WORLD_SIZE", "3"},
                                                              {"LOCAL_RANK", "0"},
                                                              {"LOCAL_WORLD_SIZE", "1"},
                                                              {"CUDA_VISIBLE_DEVICES", "0"},
                                                              {"MASTER_ADDR", "127.0.0.1"},
                                                              {"MASTER_PORT", port},
                                                              {"TRIREME_INSECURE", "1"},
                                                              {"OMP_NUM_THREADS", "1"}},
                                                             {}}));
  for (auto& rank : ranks)
    ASSERT_EQ(rank->finish(std::chrono::seconds(120)), 0) << rank->out << rank->err;

  std::string want = R"(Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/3
----------------------------------------------------------------------------------------------------
distributed_backend=nccl
All distributed processes registered. Starting with 3 processes
----------------------------------------------------------------------------------------------------

LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]

  | Name     | Type    | Params
-------------------------------------
0 | conv1    | Conv2d  | 320
1 | conv2    | Conv2d  | 18.5 K
2 | dropout1 | Dropout | 0
3 | dropout2 | Dropout | 0
4 | fc1      | Linear  | 1.2 M
5 | fc2      | Linear  | 1.3 K
-------------------------------------
1.2 M     Trainable params
0         Non-trainable params
1.2 M     Total params
4.800     Total estimated model params size (MB)
)";
  // The one word that is not the document's: this machine has no GPU, and so no NCCL.
  const std::string backend = "distributed_backend=";
  const size_t at = ranks[0]->out.find(backend) + backend.size();
  want.replace(want.find("nccl"), 4, ranks[0]->out.substr(at, ranks[0]->out.find('\n', at) - at));
  EXPECT_EQ(ranks[0]->out.substr(0, want.size()), want);
  EXPECT_EQ(ranks[0]->out.rfind("\nEpoch 0: loss=", want.size()), want.size()) << ranks[0]->out;
  for (const char* r : {"1", "2"}) {
    const int rank = std::atoi(r);
    EXPECT_EQ(ranks[static_cast<size_t>(rank)]->out,
              std::string("Initializing distributed: GLOBAL_RANK: ") + r + ", MEMBER: " +
                  std::to_string(rank + 1) + "/3\nLOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]\n");
  }
}

}  // namespace
}  // namespace trireme::testing::examples_test
