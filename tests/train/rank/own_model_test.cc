// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/paths.h"

// The program of docs/your_own_model.md and the README, as its reader would start it.
namespace trireme::testing::own_model_test {
namespace {

class train_rank_own_model : public ::testing::Test {
 protected:
  Command start(Arguments words, const std::string& program = "gan") const {
    words.insert(words.begin(), trireme::testing::build_path("/tests/") + program);
    return Command(words, {{}, folder_.path()});
  }
  Arguments run(int ranks, int steps, const Arguments& more = {}) const {
    return run_of(kGan, ranks, steps, more);
  }
  Arguments run_of(const std::string& config, int ranks, int steps, const Arguments& more) const {
    Arguments words{config, "--nproc-per-node", std::to_string(ranks), "--run-dir",
                    run_,   "--steps",          std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  nlohmann::json last_step() const {
    nlohmann::json last;
    for (const auto& line : json_lines(run_ + "/metrics.jsonl"))
      if (line.contains("loss")) last = line;
    return last;
  }

  const std::string kGan = trireme::testing::source_path("/examples/own_model/gan.json");
  const std::string kDeep = trireme::testing::source_path("/examples/own_model/deep.json");
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

TEST_F(train_rank_own_model, a_chain_of_pieces_is_a_pipeline_and_goes_on_as_one_rank) {
  Command first =
      start(run_of(kDeep, 2, 30,
                   {"--set", "parallelism.pp=2", "--set", "parallelism.partition_method=measured"}),
            "deep");
  ASSERT_EQ(first.finish(std::chrono::seconds(60)), 0) << first.err;
  EXPECT_NE(first.err.find("a pipeline of 2 ranks by 1f1b"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("pieces, which take "), std::string::npos) << first.err;
  const nlohmann::json step = last_step();
  EXPECT_EQ(step.at("step"), 30);
  Command again = start(
      {"--resume", run_, "--nproc-per-node", "1", "--steps", "40", "--set", "parallelism.pp=1"},
      "deep");
  ASSERT_EQ(again.finish(std::chrono::seconds(60)), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step 30"), std::string::npos) << again.err;
  EXPECT_LT(last_step().at("loss").get<double>(), step.at("loss").get<double>());
}

// With ranks that are processes: threads share LibTorch's generator, which every rank seeds when it
// begins a step and whose state a recomputed piece must find as it was.
TEST_F(train_rank_own_model, recomputed_pieces_of_a_pipeline_give_the_same_loss) {
  const auto loss = [&](int ranks, const Arguments& more) {
    std::filesystem::remove_all(run_);
    Command job = start(run_of(kDeep, ranks, 20, more), "deep");
    EXPECT_EQ(job.finish(std::chrono::seconds(60)), 0) << job.err;
    return last_step().at("loss").get<double>();
  };
  const double plain = loss(1, {}), pipeline = loss(2, {"--set", "parallelism.pp=2"});
  EXPECT_NEAR(pipeline / plain, 1, 1e-4);
  EXPECT_EQ(loss(2, {"--set", "parallelism.pp=2", "--set", "training.recompute_every=1"}),
            pipeline);
}

TEST_F(train_rank_own_model, layers_are_divided_over_ranks_and_go_on_as_one_rank_or_a_pipeline) {
  const auto run = [&](int ranks, int steps, const Arguments& more) {
    Command job = start(run_of(kDeep, ranks, steps, more), "deep");
    EXPECT_EQ(job.finish(std::chrono::seconds(60)), 0) << job.err;
    return job.err;
  };
  const auto loss = [&] { return last_step().at("loss").get<double>(); };
  const Arguments two{"--set", "parallelism.tp=2"};
  run(1, 20, {});
  const double one = loss();
  for (const Arguments& more :
       {Arguments{}, Arguments{"--set", "training.recompute_every=1"},
        Arguments{"--set", "training.check_replicas=5", "--set", "zero_optimization.stage=3"}}) {
    std::filesystem::remove_all(run_);
    Arguments words = two;
    words.insert(words.end(), more.begin(), more.end());
    const std::string said = run(2, 20, words);
    EXPECT_NE(said.find("layers over 2 ranks"), std::string::npos) << said;
    EXPECT_NEAR(loss() / one, 1, 1e-4);
  }
  for (const auto& [ranks, steps, axis] : std::vector<std::tuple<int, std::string, std::string>>{
           {1, "30", "parallelism.tp=1"}, {4, "40", "parallelism.pp=2"}}) {
    Command again = start({"--resume", run_, "--nproc-per-node", std::to_string(ranks), "--steps",
                           steps, "--set", axis},
                          "deep");
    ASSERT_EQ(again.finish(std::chrono::seconds(60)), 0) << again.err;
    EXPECT_EQ(last_step().at("step"), std::stoi(steps));
    EXPECT_LT(loss(), one);
  }
}

TEST_F(train_rank_own_model, summary_counts_the_part_of_a_rank_that_divided_layers_leave_it) {
  const auto weights = [&](const Arguments& sets) {
    Arguments words{"summary", kDeep, "--nproc-per-node", "4"};
    words.insert(words.end(), sets.begin(), sets.end());
    Command summary = start(words, "deep");
    EXPECT_EQ(summary.finish(std::chrono::seconds(60)), 0) << summary.err;
    // The whole model: 6 blocks of 2 × 64, 64 × 256 + 256 and 256 × 64 + 64, and both ends.
    EXPECT_NE(summary.out.find("199 K     Total params"), std::string::npos) << summary.out;
    return summary.out;
  };
  EXPECT_NE(weights({}).find("779.3 KiB"), std::string::npos) << weights({});
  const std::string two = weights({"--set", "parallelism.tp=2"});
  EXPECT_NE(two.find("2 ranks of data parallelism × 2 of tensor parallelism"), std::string::npos)
      << two;
  // Of each block 2 × 64, 64 × 128 + 128 and 128 × 64 + 64.
  EXPECT_NE(two.find("392.3 KiB"), std::string::npos) << two;
  EXPECT_NE(weights({"--set", "parallelism.tp=2", "--set", "parallelism.pp=2"})
                .find("2 of tensor parallelism × 2 of pipeline parallelism"),
            std::string::npos);
}

TEST_F(train_rank_own_model, summary_has_a_row_for_each_rank_of_a_pipeline) {
  Command summary =
      start({"summary", kDeep, "--nproc-per-node", "2", "--set", "parallelism.pp=2"}, "deep");
  ASSERT_EQ(summary.finish(std::chrono::seconds(60)), 0) << summary.err;
  for (const char* part : {"Memory of the fullest rank: 1 rank of data parallelism × 2 of pipeline",
                           "in to blocks.2", "blocks.3 to out"})
    EXPECT_NE(summary.out.find(part), std::string::npos) << part << "\n" << summary.out;
  EXPECT_EQ(summary.out.find("Each stage"), std::string::npos) << summary.out;
  Command v = start({"summary", kDeep, "--nproc-per-node", "2", "--set", "parallelism.pp=2",
                     "--set", "parallelism.schedule=zb_v"},
                    "deep");
  ASSERT_EQ(v.finish(std::chrono::seconds(60)), 0) << v.err;
  for (const char* part : {"Each stage, of its rank's memory:", "\n0     0       in", "\n2     1 ",
                           "\n3     0       "})
    EXPECT_NE(v.out.find(part), std::string::npos) << part << "\n" << v.out;
}

TEST_F(train_rank_own_model, a_division_that_cannot_be_is_refused_before_ranks_start) {
  struct Row {
    std::string program, config;
    Arguments sets;
    int ranks;
    std::string sentence;
  };
  for (const Row& row : std::vector<Row>{
           {"gan", kGan, {"--set", "parallelism.pp=2"}, 2, "Derive it from trireme::ChainProgram"},
           {"deep",
            kDeep,
            {"--set", "parallelism.pp=4", "--set", "deep.blocks=1"},
            4,
            "4 stages, and the model has 3 blocks"},
           {"deep",
            kDeep,
            {"--set", "parallelism.pp=2", "--set", "parallelism.stages=[4,5]"},
            2,
            "the stages have 9 blocks together, and the model has 8"},
           {"gan",
            kGan,
            {"--set", "parallelism.tp=2"},
            2,
            "Override Program::make_divided() and make them of layers that are divided"},
           {"deep",
            kDeep,
            {"--set", "parallelism.tp=2", "--set", "parallelism.pp=9"},
            18,
            "9 stages, and the model has 8 blocks"}}) {
    Command wrong = start(run_of(row.config, row.ranks, 3, row.sets), row.program);
    EXPECT_EQ(wrong.finish(std::chrono::seconds(60)), 2) << row.sentence << wrong.err;
    EXPECT_NE(wrong.err.find(row.sentence), std::string::npos) << wrong.err;
    EXPECT_EQ(wrong.err.find("rank 1"), std::string::npos) << wrong.err;
    EXPECT_FALSE(std::filesystem::exists(run_)) << row.sentence;
    Arguments words{"summary", row.config, "--nproc-per-node", std::to_string(row.ranks)};
    words.insert(words.end(), row.sets.begin(), row.sets.end());
    Command summary = start(words, row.program);
    EXPECT_EQ(summary.finish(std::chrono::seconds(60)), 2) << row.sentence;
    EXPECT_EQ(summary.err, wrong.err);
    EXPECT_EQ(summary.out, "");
  }
}

}  // namespace
}  // namespace trireme::testing::own_model_test
