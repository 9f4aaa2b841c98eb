// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

// A rank of a model that is divided over stages and parts of layers is killed or stopped: every
// other rank waits for it in one group or another.
namespace trireme::testing::divided_test {
namespace {

// Rank 2 · stage + part.
const char kDividedGpt[] = R"({
  "model": {"type": "gpt", "layers": 2, "width": 16, "heads": 2, "context": 8},
  "data": {"type": "dummy"},
  "train_batch_size": 4,
  "train_micro_batch_size_per_gpu": 1,
  "parallelism": {"tp": 2, "pp": 2},
  "checkpoint": {"every": 1},
  "training": {"steps": 100000}
})";

Arguments divided_job(const PrivateFolder& folder, const std::string& run,
                      const Arguments& more = {}) {
  Arguments words = trireme({"train", write(folder / "gpt.json", kDividedGpt), "--nproc-per-node",
                             "4", "--run-dir", run});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Another division of the same model, on so many ranks.
struct Layout {
  const char *ranks, *tp, *pp, *stage;
};

void expect_going_on_as(const Layout& layout, const std::string& run) {
  const int64_t before = latest_step(run);
  ASSERT_GT(before, 0);
  const std::string steps = std::to_string(before + 2);
  Command again(
      trireme({"train", "--resume", run, "--nproc-per-node", layout.ranks, "--set",
               std::string("parallelism.tp=") + layout.tp, "--set",
               std::string("parallelism.pp=") + layout.pp, "--set",
               std::string("zero_optimization.stage=") + layout.stage, "--steps", steps}));
  EXPECT_EQ(again.finish(), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step " + std::to_string(before)), std::string::npos)
      << again.err;
  EXPECT_EQ(latest_step(run), before + 2);
  EXPECT_TRUE(again.left_nothing());
}

/// What the launcher says of each rank that failed, and what it says of the first.
struct Said {
  explicit Said(const std::string& err)
      : failures(err.substr(std::min(err.find("Failures:"), err.size()))),
        root(err.substr(std::min(err.find("Root Cause (first observed failure):"), err.size()))) {
    failures = failures.substr(0, failures.find("Root Cause"));
  }
  /// The sentence of a rank that was not the first to fail.
  std::string of(int rank) const {
    const auto at = failures.find("rank      : " + std::to_string(rank) + " (");
    const auto text = failures.substr(std::min(at, failures.size()));
    return text.substr(0, text.find("\n["));
  }
  std::string failures, root;
};

void expect_the_job_ends_when_killed(int rank, const Layout& next) {
  SCOPED_TRACE("rank " + std::to_string(rank));
  PrivateFolder folder;
  const std::string run = folder / "run", who = std::to_string(rank);
  Command train(divided_job(folder, run),
                {{{"TRIREME_FAILPOINTS", "train.step@2#" + who + "=kill"}}, {}});
  ASSERT_TRUE(train.wait_for("step-00000001")) << train.err;
  const auto start = Clock::now();
  EXPECT_EQ(train.finish(), 1) << train.err;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  const Said said(train.err);
  EXPECT_TRUE(holds_all(
      said.root, {"rank      : " + who + " (local_rank", "exitcode  : -9", "Signal 9 (SIGKILL)"}))
      << train.err;
  // All others name that rank by its number in the job, whichever group they waited in.
  for (int other = 0; other < 4; ++other) {
    if (other == rank) continue;
    EXPECT_TRUE(holds_all(said.of(other), {"PeerLost: ", "rank " + who + " (pid ", ") died"}))
        << "rank " << other << "\n"
        << train.err;
  }
  EXPECT_TRUE(train.left_nothing()) << train.living().size() << " processes are left";
  EXPECT_EQ(latest_step(run), 1);
  expect_going_on_as(next, run);
}

}  // namespace

TEST(faults_divided, killing_a_rank_of_the_first_stage_ends_all_and_another_layout_goes_on) {
  expect_the_job_ends_when_killed(0, {"1", "1", "1", "0"});
  expect_the_job_ends_when_killed(1, {"2", "2", "1", "0"});
}

TEST(faults_divided, killing_a_rank_of_the_last_stage_ends_all_and_another_layout_goes_on) {
  expect_the_job_ends_when_killed(2, {"2", "1", "2", "0"});
  expect_the_job_ends_when_killed(3, {"2", "1", "1", "3"});
}

TEST(faults_divided, a_stopped_rank_is_a_timeout_that_names_it) {
  PrivateFolder folder;
  const std::string run = folder / "run";
  Command train(divided_job(folder, run, {"--set", "comm.timeout_s=3"}),
                {{{"TRIREME_FAILPOINTS", "train.step=sleep(5)"}}, {}});
  ASSERT_TRUE(train.wait_for("step-00000002")) << train.err;
  const pid_t victim = train.rank(3);
  ASSERT_GT(victim, 0);
  const auto start = Clock::now();
  ASSERT_TRUE(send_signal(victim, SIGSTOP));
  EXPECT_EQ(train.finish(), 1) << train.err;
  EXPECT_LT(seconds_since(start), 3 + 5 * kSlack);
  EXPECT_GT(seconds_since(start), 2);
  // Of whoever gave up first: if it has no group with rank 3, it waits for one that has.
  EXPECT_EQ(error_lines(train.err), 1) << train.err;
  const auto error =
      train.err.substr(std::min(train.err.find("trireme: error: "), train.err.size()));
  // A call that is served late says 3.01 s.
  EXPECT_TRUE(holds_all(error, {"rank 3", " within 3", " s of rank "}));
  EXPECT_TRUE(error.find("rank 3 did not") != std::string::npos ||
              error.find("(rank 3: ") != std::string::npos ||
              error.find("and waits for rank 3") != std::string::npos)
      << error;
  EXPECT_TRUE(train.left_nothing()) << train.living().size() << " processes are left";
  expect_going_on_as({"2", "2", "1", "1"}, run);
}

}  // namespace trireme::testing::divided_test
