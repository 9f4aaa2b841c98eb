// SPDX-License-Identifier: Apache-2.0
// A job that loses workers again and again, and gets new ones: the bits of a run that lost none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/faults/job.h"

namespace trireme::testing::losses_test {
namespace {

constexpr int kRanks = 4;
constexpr int kEvery = 5;  // steps from loss to loss; every third takes half of the ranks

/// A few; scripts/soak --losses asks for more.
int steps_of_a_run() {
  const char* soak = std::getenv("TRIREME_SOAK_LOSSES");
  return soak ? std::atoi(soak) : 16;
}

class faults_losses : public ::testing::TestWithParam<const char*> {
 protected:
  Command start(const std::string& run, const Arguments& more, const char* failpoints) const {
    Arguments words =
        trireme({"train", write(folder_ / "config.json", kReproducibleMlp), "--run-dir", run,
                 "--nproc-per-node", std::to_string(kRanks), "--steps", std::to_string(steps_),
                 "--set", "steps_per_print=1", "--set", "zero_optimization.stage=2", "--set",
                 "checkpoint.snapshot_every=1"});
    words.insert(words.end(), more.begin(), more.end());
    return Command(words, {{{"TRIREME_FAILPOINTS", failpoints}}, folder_.path()});
  }
  const int steps_ = steps_of_a_run();
  PrivateFolder folder_;
};

TEST_P(faults_losses, of_one_rank_or_two_every_five_steps_leave_the_bits_of_a_calm_run) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  Command quiet = start(calm, {}, "");
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;

  Command job =
      start(run, {"--max-restarts", "1000", "--set", fmt::format("elastic.mode={}", GetParam())},
            "train.step=sleep(200)");
  int losses = 0;
  for (int at = kEvery; at < steps_; at += kEvery) {
    const std::string line = fmt::format("step: {:2}/{}", at, steps_);
    ASSERT_TRUE(job.wait_for(line, seconds(60))) << line << job.out << job.err;
    const int first = at / kEvery % kRanks, lost = at / kEvery % 3 == 0 ? kRanks / 2 : 1;
    for (int i = 0; i < lost; ++i) {
      const pid_t worker = job.rank((first + i) % kRanks);
      if (worker > 0 && send_signal(worker, SIGKILL)) ++losses;
    }
  }
  ASSERT_EQ(job.finish(seconds(120)), 0) << job.err;
  EXPECT_GE(losses, (steps_ - 1) / kEvery) << job.err;
  EXPECT_TRUE(job.left_nothing());
  // Whoever is left at the end saves: files are as many as there are ranks, tensors are the same.
  Command same(trireme({"checkpoint", "diff", calm, run, "--tensors", "*"}));
  EXPECT_EQ(same.finish(), 0) << same.out << same.err << job.err;
  // Each sample was learned once, though some steps were done anew.
  const auto steps = steps_in(run + "/metrics.jsonl");
  EXPECT_EQ((std::set<int64_t>{steps.begin(), steps.end()}.size()), static_cast<size_t>(steps_));
}

INSTANTIATE_TEST_SUITE_P(modes, faults_losses, ::testing::Values("restart", "in_process"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace trireme::testing::losses_test
