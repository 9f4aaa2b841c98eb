// SPDX-License-Identifier: Apache-2.0
// --hang-timeout: runs of which a rank makes no progress, and of which none is merely slow.
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/fault_times.h"
#include "trireme/base/file.h"

namespace trireme::testing::hang_test {
namespace {

class faults_hang : public ::testing::Test {
 protected:
  Command start(const Arguments& more, const std::string& failpoints) const {
    Arguments words{"train",
                    write(folder_ / "tiny.json", kTinyMlp),
                    "--run-dir",
                    run_,
                    "--steps",
                    "4",
                    "--set",
                    "checkpoint.every=2",
                    "--set",
                    "steps_per_print=1000000",
                    "--nproc-per-node",
                    "2"};
    words.insert(words.end(), more.begin(), more.end());
    return Command(trireme(words), {{{"TRIREME_FAILPOINTS", failpoints}}, folder_.path()});
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  PrivateFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(faults_hang, a_run_of_which_a_rank_stops_goes_on_from_its_last_step) {
  Command job = start({"--hang-timeout", "1", "--max-restarts", "1"}, "train.step@3#1=stop");
  ASSERT_TRUE(job.wait_for("saved ")) << job.err;
  const auto begin = Clock::now();
  ASSERT_TRUE(job.wait_for("hangs in step 3")) << job.err;
  fault_took("stopped rank", seconds_since(begin) - 1);  // of its limit
  EXPECT_LT(seconds_since(begin), 1 + 2 * kSlack);
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_TRUE(holds_all(
      job.err, {"and it is stopped by a signal; rank 0 waits in call ", " of group world, all_",
                "rank 1 hangs in step 3: all workers start again (restart 1 of 1)",
                "going on after step 2"}))
      << job.err;
  EXPECT_EQ(latest_step(run_), 4);
  EXPECT_TRUE(job.left_nothing());
  const std::string report = read_file(run_ + "/flight/hang.txt");
  EXPECT_TRUE(holds_all(report, {"rank 1 (pid ", ": step 3, silent for ", ": state T (stopped)"}))
      << report;
  // Rank 0 answered.
  Command trace(trireme({"trace", "flight", run_ + "/flight"}));
  trace.finish();
  EXPECT_NE((trace.out + trace.err).find("rank 1"), std::string::npos) << trace.out << trace.err;
}

TEST_F(faults_hang, what_a_rank_waits_in_is_known_of_other_backends_too) {
  Command job =
      start({"--hang-timeout", "1", "--set", "comm.backend=gloo"}, "train.step@3#0=sleep(600000)");
  EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
  EXPECT_TRUE(holds_all(job.err, {"rank 0 (pid ", ") hangs in step 3: ",
                                  "and it waits in no call; "
                                  "rank 1 waits in call ",
                                  " of group world, all_"}))
      << job.err;
  EXPECT_TRUE(job.left_nothing());
}

// Each write takes as long as the limit, and a save many of them.
TEST_F(faults_hang, a_slow_disk_is_not_a_hang) {
  Command job = start({"--hang-timeout", "0.3"}, "checkpoint.write=sleep(300)");
  EXPECT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(job.err.find("hangs"), std::string::npos) << job.err;
  Command async = start({"--hang-timeout", "0.3", "--overwrite", "--set", "checkpoint.async=true"},
                        "checkpoint.write=sleep(300)");
  EXPECT_EQ(async.finish(seconds(60)), 0) << async.err;
  EXPECT_EQ(async.err.find("hangs"), std::string::npos) << async.err;
}

}  // namespace
}  // namespace trireme::testing::hang_test
