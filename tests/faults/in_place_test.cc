// SPDX-License-Identifier: Apache-2.0
// `elastic.mode: in_process`: ranks that are left keep their processes when one is lost.
#include <gtest/gtest.h>

#include <set>

#include "tests/faults/job.h"
#include "trireme/base/file.h"

namespace trireme::testing::in_place_test {
namespace {

class faults_in_place : public ::testing::Test {
 protected:
  Command start(const std::string& run, const std::string& config, int ranks, int steps,
                const Arguments& more = {}, const std::string& failpoints = "") const {
    Arguments words{"train",
                    write(folder_ / "config.json", config),
                    "--run-dir",
                    run,
                    "--nproc-per-node",
                    std::to_string(ranks),
                    "--steps",
                    std::to_string(steps),
                    "--set",
                    "steps_per_print=1000000"};
    words.insert(words.end(), more.begin(), more.end());
    Environment environment;
    if (!failpoints.empty()) environment = {{"TRIREME_FAILPOINTS", failpoints}};
    return Command(trireme(words), {environment, folder_.path()});
  }
  static Arguments in_place(int losses, const Arguments& more = {}) {
    Arguments words{"--set", "elastic.mode=in_process", "--max-restarts", std::to_string(losses)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::string weights_of(const std::string& run, const std::string& step) {
    return read_file(run + "/step-" + step + "/model.safetensors") +
           read_file(run + "/step-" + step + "/state.safetensors");
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
  static bool wait_for_count(Command& job, const std::string& part, int n) {
    for (const Deadline end = Deadline::after(seconds(60)); count(job.err, part) < n;) {
      if (end.expired()) return false;
      job.wait_for("nothing says this", milliseconds(50));
    }
    return true;
  }
  static std::set<int64_t> once_each(const std::string& run) {
    const auto steps = steps_in(run + "/metrics.jsonl");
    return {steps.begin(), steps.end()};
  }

  PrivateFolder folder_;
};

TEST_F(faults_in_place, a_rank_that_is_killed_again_and_again_leaves_the_bits_of_a_calm_run) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  Command quiet = start(calm, kReproducibleMlp, 4, 200);
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;
  // Rank 3 dies in its 15th step, and so does each that takes its place.
  Command job = start(run, kReproducibleMlp, 4, 200, in_place(20),
                      "train.step=sleep(60),train.step@15#3=kill");
  ASSERT_EQ(job.finish(seconds(90)), 0) << job.err;
  EXPECT_TRUE(job.left_nothing());
  const int losses = count(job.err, "was ended by SIGKILL: the others go on, and a new worker");
  EXPECT_GE(losses, 2) << job.err;
  EXPECT_GE(count(job.err, "going on in place after step"), losses + 1) << job.err;
  EXPECT_GE(count(job.err, "waits as a spare: 2 train"), 1) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_EQ(weights_of(run, "00000200"), weights_of(calm, "00000200"));
  EXPECT_EQ(once_each(run).size(), 200u);
}

TEST_F(faults_in_place, rank_0_and_the_whole_budget_may_be_lost) {
  const std::string run = folder_ / "run";
  Command job = start(run, kTinyMlp, 3, 100000, in_place(1, {"--set", "checkpoint.every=10"}),
                      "train.step=sleep(5)");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  const pid_t other = job.rank(1);
  ASSERT_TRUE(send_signal(job.rank(0), SIGKILL));
  ASSERT_TRUE(job.wait_for("going on in place after step")) << job.err;
  ASSERT_TRUE(job.wait_for("3 train from the next step on", seconds(60))) << job.err;
  EXPECT_EQ(job.rank(1), other) << "it is the same process";
  ASSERT_TRUE(send_signal(other, SIGKILL));
  EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
  EXPECT_TRUE(holds_all(job.err, {"(restart 1 of 1)", "Signal 9 (SIGKILL)"})) << job.err;
  EXPECT_TRUE(job.left_nothing());
  expect_resumable(run, {"--max-restarts", "1"});
}

TEST_F(faults_in_place, fewer_ranks_take_a_step_s_samples_unevenly_and_learn_the_same) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  Command quiet = start(calm, kTinyMlp, 3, 60);
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;
  Command job = start(run, kTinyMlp, 3, 60, in_place(1, {"--set", "checkpoint.every=10"}),
                      "train.step=sleep(20)");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(2), SIGKILL));
  ASSERT_EQ(job.finish(seconds(90)), 0) << job.err;
  EXPECT_EQ(count(job.err, "(restart 1 of 1)"), 1) << job.err;
  EXPECT_EQ(once_each(run).size(), 60u);
  Command same(trireme({"checkpoint", "diff", calm, run, "--tensors", "*", "--atol", "1e-5"}));
  EXPECT_EQ(same.finish(), 0) << same.out << same.err;
}

TEST_F(faults_in_place, two_of_four_and_then_three_are_lost_and_all_come_back) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  Command quiet = start(calm, kReproducibleMlp, 4, 300);
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;
  Command job = start(run, kReproducibleMlp, 4, 300, in_place(9, {"--set", "checkpoint.every=10"}),
                      "train.step=sleep(20)");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  const pid_t first = job.rank(3), second = job.rank(0), third = job.rank(2), last = job.rank(1);
  ASSERT_TRUE(send_signal(first, SIGKILL));
  ASSERT_TRUE(send_signal(second, SIGKILL));
  ASSERT_TRUE(job.wait_for("4 train from the next step on", seconds(60))) << job.err;
  EXPECT_EQ(job.rank(1), last) << "it is the same process";
  for (const pid_t pid : {job.rank(0), third, job.rank(3)}) ASSERT_TRUE(send_signal(pid, SIGKILL));
  ASSERT_EQ(job.finish(seconds(90)), 0) << job.err;
  EXPECT_EQ(count(job.err, "the others go on, and a new worker"), 5) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_EQ(weights_of(run, "00000300"), weights_of(calm, "00000300"));
  EXPECT_EQ(once_each(run).size(), 300u);
  EXPECT_TRUE(job.left_nothing());
}

/// The shards of a rank that is lost are gone: all go back, in their processes.
TEST_F(faults_in_place, where_shards_are_lost_all_go_back_to_the_last_snapshot_in_memory) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  const Arguments zero{"--set", "zero_optimization.stage=2"};
  Command quiet = start(calm, kReproducibleMlp, 4, 80, zero);
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;
  Command job = start(
      run, kReproducibleMlp, 4, 80,
      in_place(9, {"--set", "zero_optimization.stage=2", "--set", "checkpoint.snapshot_every=4"}),
      "train.step=sleep(20),train.step@18#3=kill");
  ASSERT_EQ(job.finish(seconds(90)), 0) << job.err;
  EXPECT_GE(count(job.err, "the others go on, and a new worker"), 1) << job.err;
  EXPECT_GE(count(job.err, "going on after step 16, from the memory of the workers before"), 1)
      << job.err;
  EXPECT_GE(count(job.err, "going on in place after step"), 1) << "a new one got its shards";
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_EQ(weights_of(run, "00000080"), weights_of(calm, "00000080"));
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(faults_in_place, a_rank_lost_while_the_others_build_and_one_that_hangs_are_replaced) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  Command quiet = start(calm, kReproducibleMlp, 4, 200);
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;
  // Who is rank 3 when all are there again builds for the second time, and dies of it.
  Command job = start(run, kReproducibleMlp, 4, 200, in_place(20, {"--set", "checkpoint.every=10"}),
                      "train.step=sleep(20),train.build@2#3=kill");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(2), SIGKILL));
  ASSERT_EQ(job.finish(seconds(90)), 0) << job.err;
  EXPECT_GE(count(job.err, "was ended by SIGKILL: the others go on, and a new worker"), 2)
      << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_EQ(weights_of(run, "00000200"), weights_of(calm, "00000200"));
  EXPECT_TRUE(job.left_nothing());

  const std::string hung = folder_ / "hung";
  Command stopped = start(hung, kReproducibleMlp, 4, 200,
                          in_place(20, {"--hang-timeout", "1", "--set", "checkpoint.every=10"}),
                          "train.step=sleep(20)");
  ASSERT_TRUE(stopped.wait_for("step-00000010")) << stopped.err;
  ASSERT_TRUE(send_signal(stopped.rank(0), SIGSTOP));
  ASSERT_EQ(stopped.finish(seconds(90)), 0) << stopped.err;
  EXPECT_GE(count(stopped.err, "rank 0 hangs in"), 1) << stopped.err;
  EXPECT_GE(
      count(stopped.err, ": the others go on, and a new worker takes its place (restart 1 of"), 1)
      << stopped.err;
  EXPECT_EQ(count(stopped.err, "start again"), 0) << stopped.err;
  EXPECT_EQ(weights_of(hung, "00000200"), weights_of(calm, "00000200"));
  EXPECT_TRUE(stopped.left_nothing());
}

/// The same over sockets: one is killed, with its shards of the state, and one hangs.
TEST_F(faults_in_place, ranks_that_talk_by_gloo_lose_one_and_stop_another) {
  const std::string calm = folder_ / "calm", run = folder_ / "run";
  const Arguments zero{"--set", "zero_optimization.stage=2"};
  Arguments more{"--hang-timeout", "1",
                 "--set",          "comm.backend=gloo",
                 "--set",          "checkpoint.snapshot_every=4",
                 "--set",          "checkpoint.every=10"};
  more.insert(more.end(), zero.begin(), zero.end());
  Command job = start(run, kTinyMlp, 4, 100000, in_place(9, more), "train.step=sleep(5)");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  const pid_t other = job.rank(1);
  ASSERT_TRUE(send_signal(job.rank(3), SIGKILL));
  ASSERT_TRUE(job.wait_for("whole state of a step: they go back", seconds(30))) << job.err;
  // The newest step is in memory or on the disk.
  ASSERT_TRUE(job.wait_for("going on after step", seconds(30))) << job.err;
  ASSERT_TRUE(job.wait_for("4 train from the next step on", seconds(60))) << job.err;
  ASSERT_TRUE(job.wait_for("going on in place after step", seconds(60))) << job.err;
  EXPECT_EQ(job.rank(1), other) << "it is the same process";
  ASSERT_TRUE(send_signal(job.rank(0), SIGSTOP));
  ASSERT_TRUE(job.wait_for("(restart 2 of 9)", seconds(30))) << job.err;
  EXPECT_GE(count(job.err, "rank 0 hangs in"), 1) << job.err;
  ASSERT_TRUE(wait_for_count(job, "4 train from the next step on", 2)) << job.err;
  job.send(SIGINT);
  ASSERT_EQ(job.finish(seconds(60)), 130) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_TRUE(job.left_nothing());
  const int64_t last = latest_step(run);
  Command quiet = start(calm, kTinyMlp, 4, static_cast<int>(last), zero);
  ASSERT_EQ(quiet.finish(seconds(60)), 0) << quiet.err;
  Command same(trireme({"checkpoint", "diff", calm, run, "--tensors", "*", "--atol", "1e-4"}));
  EXPECT_EQ(same.finish(), 0) << same.out << same.err;
}

/// Between the last collective call and the word that the run is over. Who has been started in its
/// place is in a generation with ranks that have ended.
TEST_F(faults_in_place, a_rank_0_that_dies_before_it_says_that_all_is_over_leaves_nobody_waiting) {
  const std::string run = folder_ / "run";
  Command job = start(run, kTinyMlp, 3, 10, in_place(2),
                      "rendezvous.over#0=kill,rendezvous.over#1=sleep(3000),"
                      "rendezvous.over#2=sleep(3000)");
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, "was ended by SIGKILL: the others go on, and a new worker"), 1)
      << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
  EXPECT_EQ(latest_step(run), 10);
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(faults_in_place, a_launcher_that_is_killed_while_a_rank_is_missing_leaves_nobody) {
  Command job = start(folder_ / "run", kTinyMlp, 3, 100000,
                      in_place(9, {"--set", "checkpoint.every=10"}), "train.step=sleep(5)");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(2), SIGKILL));
  ASSERT_TRUE(job.wait_for("the others go on")) << job.err;
  job.send(SIGKILL);
  EXPECT_EQ(job.finish(seconds(30)), 128 + SIGKILL) << job.err;
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(faults_in_place, Ctrl_C_while_a_rank_is_missing_saves_and_ends_all) {
  const std::string run = folder_ / "run";
  Command job = start(run, kTinyMlp, 3, 100000, in_place(9, {"--set", "checkpoint.every=10"}),
                      "train.step=sleep(5)");
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(2), SIGKILL));
  ASSERT_TRUE(job.wait_for("going on in place after step")) << job.err;
  job.send(SIGINT);
  EXPECT_EQ(job.finish(seconds(60)), 130) << job.err;
  EXPECT_TRUE(job.left_nothing());
  expect_resumable(run, {"--max-restarts", "1"});
}

TEST_F(faults_in_place, a_rank_that_reports_an_error_or_dies_before_its_first_step_restarts_all) {
  for (const char* failpoint : {"train.step@5#1=throw", "train.build@1#1=kill"}) {
    const std::string run = folder_ / (failpoint[6] == 's' ? "report" : "early");
    Command job = start(run, kTinyMlp, 2, 20, in_place(1), failpoint);
    EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
    EXPECT_EQ(count(job.err, "all workers start again (restart 1 of 1)"), 1) << job.err;
    EXPECT_EQ(count(job.err, "the others go on"), 0) << job.err;
    EXPECT_TRUE(job.left_nothing());
  }
}

TEST_F(faults_in_place, what_cannot_go_on_is_refused_by_name_before_ranks_start) {
  const auto refused = [&](const Arguments& more, const std::vector<std::string>& words) {
    Command job = start(folder_ / "run", kTinyMlp, 2, 5, more);
    expect_refusal(job, 2, words);
  };
  refused({"--set", "elastic.mode=in_process"}, {"elastic.mode", "--max-restarts is 0"});
  refused(in_place(1, {"--set", "zero_optimization.stage=1", "--set",
                       "zero_optimization.share_weights=true"}),
          {"elastic.mode", "share_weights", "may have been writing"});
  refused(in_place(1, {"--set", "comm.backend=mpi"}), {"elastic.mode", "comm.backend"});
  refused({"--set", "elastic.batch=scale"}, {"elastic.batch"});
}

}  // namespace
}  // namespace trireme::testing::in_place_test
