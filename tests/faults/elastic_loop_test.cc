// SPDX-License-Identifier: Apache-2.0
// elastic(): a loop of one's own, examples/own_loop/elastic.cc, of which ranks come and go.
#include <gtest/gtest.h>

#include "tests/faults/job.h"

namespace trireme::testing::elastic_loop_test {
namespace {

constexpr const char* kProgram = "own_loop_elastic";

Command start(int ranks, const Arguments& launcher, const Arguments& words,
              const Environment& environment = {}) {
  Arguments all = trireme({"run", "--nproc-per-node", std::to_string(ranks)});
  all.insert(all.end(), launcher.begin(), launcher.end());
  all.push_back(trireme::testing::build_path(std::string("/tests/") + kProgram));
  all.insert(all.end(), words.begin(), words.end());
  return Command(all, {environment, {}});
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(faults_elastic_loop, a_loop_of_one_s_own_goes_on_without_a_rank_and_with_another) {
  Command job = start(3, {"--max-restarts", "3"}, {"300", "10"});
  ASSERT_TRUE(job.wait_for("3 ranks from step 1\n")) << job.out << job.err;
  const pid_t first = job.rank(0, "RANK", seconds(20), kProgram);
  const pid_t other = job.rank(2, "RANK", seconds(20), kProgram);
  ASSERT_TRUE(send_signal(first, SIGKILL));
  ASSERT_TRUE(job.wait_for("2 ranks from step ")) << job.out << job.err;
  EXPECT_EQ(job.rank(2, "RANK", seconds(20), kProgram), other) << "it is the same process";
  EXPECT_EQ(job.finish(seconds(60)), 0) << job.out << job.err;
  EXPECT_EQ(count(job.out, "3 ranks from step "), 2) << job.out << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_TRUE(holds_all(job.out, {"step 300, 57600 samples, loss "})) << "each sample once";
  EXPECT_TRUE(job.left_nothing());
}

TEST(faults_elastic_loop, a_rank_0_that_dies_at_the_end_leaves_nobody_waiting) {
  Command job =
      start(2, {"--max-restarts", "1"}, {"20"},
            {{"TRIREME_FAILPOINTS", "rendezvous.over#0=kill,rendezvous.over#1=sleep(3000)"}});
  EXPECT_EQ(job.finish(seconds(60)), 0) << job.out << job.err;
  EXPECT_EQ(count(job.err, "the others go on, and a new worker"), 1) << job.err;
  EXPECT_EQ(count(job.err, "the others have ended without this rank"), 1) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_TRUE(job.left_nothing());
}

TEST(faults_elastic_loop, without_restarts_the_loop_runs_once_and_ends_with_the_rank) {
  Command calm = start(2, {}, {"20"});
  ASSERT_EQ(calm.finish(), 0) << calm.err;
  EXPECT_TRUE(holds_all(calm.out, {"2 ranks from step 1", "step 20, 3840 samples, loss "}));
  Command job = start(2, {}, {"100000", "5"});
  ASSERT_TRUE(job.wait_for("2 ranks from step 1\n")) << job.out << job.err;
  ASSERT_TRUE(send_signal(job.rank(1, "RANK", seconds(20), kProgram), SIGKILL));
  EXPECT_EQ(job.finish(), 1) << job.out << job.err;
  EXPECT_TRUE(job.left_nothing());
}

TEST(faults_elastic_loop, a_job_within_a_worker_of_another_has_none_of_its_number) {
  Arguments all = trireme({"run", "--nproc-per-node", "2",
                           trireme::testing::build_path(std::string("/tests/") + kProgram), "20"});
  Command inner(all, {{{"TRIREME_MEMBER", "7"}}, {}});
  EXPECT_EQ(inner.finish(seconds(60)), 0) << inner.out << inner.err;
  EXPECT_TRUE(holds_all(inner.out, {"2 ranks from step 1", "step 20, 3840 samples, loss "}));
}

}  // namespace
}  // namespace trireme::testing::elastic_loop_test
