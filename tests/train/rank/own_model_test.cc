// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

// The program of docs/your_own_model.md and the README, as its reader would start it.
namespace trireme::testing::own_model_test {
namespace {

class train_rank_own_model : public ::testing::Test {
 protected:
  Command start(Arguments words) const {
    words.insert(words.begin(), TRIREME_BUILD_DIR "/tests/gan");
    return Command(words, {{}, folder_.path()});
  }
  Arguments run(int ranks, int steps, const Arguments& more = {}) const {
    Arguments words{kGan, "--nproc-per-node", std::to_string(ranks), "--run-dir",
                    run_, "--steps",          std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  nlohmann::json last_step() const {
    nlohmann::json last;
    for (const auto& line : json_lines(run_ + "/metrics.jsonl"))
      if (line.contains("loss")) last = line;
    return last;
  }

  const std::string kGan = TRIREME_SOURCE_DIR "/examples/own_model/gan.json";
  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(train_rank_own_model, trains_on_two_ranks_and_goes_on_where_it_ended) {
  Command first = start(run(2, 30, {"--set", "zero_optimization.stage=2"}));
  ASSERT_EQ(first.finish(std::chrono::seconds(60)), 0) << first.err;
  EXPECT_NE(first.err.find("4096 points on a ring"), std::string::npos) << first.err;
  const nlohmann::json step = last_step();
  EXPECT_EQ(step.at("step"), 30);
  for (const char* name : {"critic.loss", "critic.real", "critic.fake", "generator.loss"})
    EXPECT_GT(step.at(name).get<double>(), 0) << name;
  EXPECT_DOUBLE_EQ(step.at("critic.lr").get<double>(), 2e-3);
  EXPECT_DOUBLE_EQ(step.at("generator.lr").get<double>(), 1e-3);
  EXPECT_EQ(latest_step(run_), 30);
  Command again = start({"--resume", run_, "--nproc-per-node", "2", "--steps", "40"});
  ASSERT_EQ(again.finish(std::chrono::seconds(60)), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step 30"), std::string::npos) << again.err;
  EXPECT_EQ(last_step().at("step"), 40);
}

TEST_F(train_rank_own_model, summary_counts_its_pieces_and_the_memory_of_a_rank) {
  Command plain = start({"summary", kGan, "--nproc-per-node", "2"});
  ASSERT_EQ(plain.finish(std::chrono::seconds(60)), 0) << plain.err;
  // generator: 8 × 64 + 64 + 64 × 2 + 2; critic: 2 × 64 + 64 + 64 + 1.
  for (const char* part :
       {"generator", "critic", "706", "257", "963", "Memory of each rank: 2 ranks"})
    EXPECT_NE(plain.out.find(part), std::string::npos) << part << "\n" << plain.out;
  Command other = start({"summary", kGan, "--set", "gan.noise=16"});
  ASSERT_EQ(other.finish(std::chrono::seconds(60)), 0) << other.err;
  EXPECT_NE(other.out.find("1.2 K"), std::string::npos) << other.out;
  Command wrong = start({"summary", kGan, "--sett", "gan.noise=16"});
  EXPECT_EQ(wrong.finish(std::chrono::seconds(60)), 2);
  EXPECT_NE(wrong.err.find("summary: there is no flag --sett"), std::string::npos) << wrong.err;
  EXPECT_EQ(start({"summary"}).finish(std::chrono::seconds(60)), 2);
}

TEST_F(train_rank_own_model, its_keys_are_checked_like_all_others) {
  for (const auto& [set, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"gan.noise=0", "gan.noise"},
           {"gan.nois=3", "gan.noise"},
           {"model.layers=3", "model.layers applies to the built-in models"},
           {"training.epochs=\"two\"", "training.epochs"}}) {
    Command wrong = start(run(1, 3, {"--set", set}));
    EXPECT_EQ(wrong.finish(std::chrono::seconds(60)), 2) << set << wrong.err;
    EXPECT_NE(wrong.err.find(sentence), std::string::npos) << set << "\n" << wrong.err;
    EXPECT_FALSE(std::filesystem::exists(run_)) << set;
  }
}

}  // namespace
}  // namespace trireme::testing::own_model_test
