// SPDX-License-Identifier: Apache-2.0
// `elastic.mode: in_process` on several hosts: a worker that is lost on one of them is replaced
// there, and those that are left on all of them keep their processes.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>

#include "tests/faults/job_on_hosts.h"

namespace trireme::testing::in_place_hosts_test {
namespace {

constexpr Duration kPatience = seconds(120);

class faults_in_place_hosts : public JobOnHosts {
 protected:
  faults_in_place_hosts() : JobOnHosts(2) {}

  Arguments words(const std::string& run, int steps, const Arguments& more) const {
    Arguments all{"train",     write(folder_ / "config.json", kTinyMlp),
                  "--run-dir", run,
                  "--steps",   std::to_string(steps),
                  "--set",     "steps_per_print=1000000",
                  "--set",     "checkpoint.every=10"};
    all.insert(all.end(), more.begin(), more.end());
    return trireme(all);
  }
  /// Two ranks of each host.
  std::unique_ptr<Command> launcher(int host, int steps, const Arguments& more = {}) const {
    Arguments flags{"--max-restarts",
                    "3",
                    "--nproc-per-node",
                    "2",
                    "--nnodes=2",
                    "--node-rank=" + std::to_string(host),
                    "--set",
                    "elastic.mode=in_process",
                    "--master-addr=" + Hosts::address(0),
                    "--local-addr=" + Hosts::address(host)};
    flags.insert(flags.end(), more.begin(), more.end());
    return std::make_unique<Command>(hosts_.on(host, words(run_, steps, flags)),
                                     CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"},
                                                     {"TRIREME_FAILPOINTS", "train.step=sleep(5)"}},
                                                    folder_.path()});
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
  const std::string run_ = folder_ / "run";
};

TEST_F(faults_in_place_hosts, one_is_lost_on_either_host_and_the_ranks_learn_the_same) {
  const auto zero = launcher(0, 100000), one = launcher(1, 100000);
  ASSERT_TRUE(zero->wait_for("step-00000010", seconds(60))) << zero->err << one->err;
  const pid_t other = zero->rank(1), there = one->rank(3);
  ASSERT_TRUE(send_signal(one->rank(2), SIGKILL));
  ASSERT_TRUE(one->wait_for("4 train from the next step on", seconds(60))) << one->err << zero->err;
  // Rank 0, which has the run folder, too.
  ASSERT_TRUE(send_signal(zero->rank(0), SIGKILL));
  ASSERT_TRUE(zero->wait_for("4 train from the next step on", seconds(60)))
      << zero->err << one->err;
  EXPECT_EQ(zero->rank(1), other) << "it is the same process";
  EXPECT_EQ(one->rank(3), there) << "it is the same process";
  one->send(SIGINT);
  EXPECT_EQ(one->finish(kPatience), 130) << one->err << zero->err;
  EXPECT_EQ(zero->finish(kPatience), 130) << zero->err << one->err;
  const std::string replaced = "the others go on, and a new worker takes its place (restart ";
  EXPECT_EQ(count(one->err, replaced + "1 of 3)"), 1) << one->err;
  EXPECT_EQ(count(zero->err, replaced + "2 of 3)"), 1) << zero->err;
  EXPECT_EQ(count(zero->err + one->err, "start again"), 0) << zero->err << one->err;
  EXPECT_FALSE(std::filesystem::exists(run_ + "/run.lock")) << "who took it has left";
  EXPECT_TRUE(zero->left_nothing());
  EXPECT_TRUE(one->left_nothing());
  const int64_t last = latest_step(run_);
  Command calm(words(folder_ / "calm", static_cast<int>(last), {"--nproc-per-node", "4"}),
               {{}, folder_.path()});
  ASSERT_EQ(calm.finish(kPatience), 0) << calm.err;
  Command same(
      trireme({"checkpoint", "diff", folder_ / "calm", run_, "--tensors", "*", "--atol", "1e-4"}));
  EXPECT_EQ(same.finish(), 0) << same.out << same.err;
  const auto steps = steps_in(run_ + "/metrics.jsonl");
  EXPECT_EQ(std::set<int64_t>(steps.begin(), steps.end()).size(), static_cast<size_t>(last));
}

TEST_F(faults_in_place_hosts, shards_that_no_other_rank_has_are_refused_by_name) {
  const Arguments zero_2{"--set", "zero_optimization.stage=2"};
  const auto zero = launcher(0, 5, zero_2), one = launcher(1, 5, zero_2);
  EXPECT_EQ(zero->finish(kPatience), 2) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 2) << one->err;
  EXPECT_TRUE(holds_all(zero->err, {"elastic.mode", "parallelism.dp_shard below 4"})) << zero->err;
}

}  // namespace
}  // namespace trireme::testing::in_place_hosts_test
