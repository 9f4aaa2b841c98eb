// SPDX-License-Identifier: Apache-2.0
// --nnodes=MIN:MAX: launchers that come and go while the job runs.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "tests/launch/cluster.h"
#include "tests/support/fault_times.h"
#include "trireme/base/check.h"

namespace trireme::launch::elastic_test {
namespace {

using std::chrono::seconds;

constexpr Duration kPatience = seconds(60);

// Says where it is; leaves as ranks that save do, or ends when the file is there.
std::string worker(const Cluster& cluster) {
  return "trap 'echo asked; exit 75' TERM; "
         "echo attempt ${TRIREME_ATTEMPT:-$TORCHELASTIC_RESTART_COUNT} rank $RANK of $WORLD_SIZE, "
         "node $GROUP_RANK of $GROUP_WORLD_SIZE, restarts $TORCHELASTIC_RESTART_COUNT; "
         "while [ ! -e " +
         cluster.path("end") + " ]; do sleep 0.05; done";
}
void let_end(const Cluster& cluster) { write_file_atomic(cluster.path("end"), "now"); }

/// The launcher that keeps the store, and who comes later.
class launch_elastic : public ::testing::Test {
 protected:
  JobProcess start(const std::string& nodes, int workers, const Words& more = {},
                   const std::string& script = "") const {
    Words flags = cluster_.at_c10d(nodes, workers);
    for (const std::string& word : more) flags.push_back(word);
    return cluster_.start(flags, script.empty() ? worker(cluster_) : script);
  }
  static const Words& soon() {
    static const Words words{"--rdzv-conf=last_call_timeout=0"};
    return words;
  }
  Cluster cluster_;
};

#define ASSERT_SAYS(job, text) \
  ASSERT_TRUE((job).wait_for(text, 1, kPatience)) << (job).out_text << (job).err_text

TEST_F(launch_elastic, one_that_comes_later_is_taken_in_and_it_costs_no_restart) {
  JobProcess a = start("1:3", 2, soon());
  ASSERT_SAYS(a, "attempt 0 rank 1 of 2, node 0 of 1, restarts 0\n");
  JobProcess b = start("1:3", 1, soon());
  ASSERT_SAYS(a, "attempt 1 rank 1 of 3, node 0 of 2, restarts 0\n");
  ASSERT_SAYS(b, "attempt 1 rank 2 of 3, node 1 of 2, restarts 0\n");
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_EQ(b.wait(kPatience), 0) << b.err_text;
  EXPECT_EQ(JobProcess::count(a.out_text, "asked\n"), 2)
      << "its workers could save: " << a.out_text;
  EXPECT_EQ(JobProcess::count(a.err_text, ") has come: all workers start again"), 1) << a.err_text;
}

TEST_F(launch_elastic, the_others_go_on_without_a_launcher_that_is_killed) {
  JobProcess a = start("1:2", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:2", 2, soon());
  ASSERT_SAYS(b, "attempt 1 rank 2 of 3,");
  ASSERT_SAYS(a, "attempt 1 rank 0 of 3,");
  b.send(SIGKILL);
  const auto killed = Clock::now();
  ASSERT_SAYS(a, "attempt 2 rank 0 of 1, node 0 of 1, restarts 0\n");
  trireme::testing::fault_took("killed launcher that may leave", killed);
  EXPECT_LT(Clock::now() - killed, seconds(15)) << "5 are promised";
  EXPECT_TRUE(b.wait_for_silence(kPatience));
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_EQ(JobProcess::count(a.err_text, "node 1 ("), 1) << a.err_text;
  EXPECT_EQ(JobProcess::count(a.err_text, "FAILED"), 0) << a.err_text;
}

TEST_F(launch_elastic, workers_that_lose_a_peer_before_its_launcher_is_missed_cost_no_restart) {
  // As ranks of ours that see a connection break: they report a lost peer and end.
  const std::string script =
      "echo attempt ${TRIREME_ATTEMPT:-0} of $WORLD_SIZE; if [ $RANK = 1 ]; then sleep 1000; fi; "
      "while [ ! -e " +
      cluster_.path("end") + " ]; do sleep 0.05; if [ $WORLD_SIZE = 2 ] && [ -e " +
      cluster_.path("lost") +
      " ]; then echo '{\"message\": {\"message\": \"PeerLost: rank 1 died\", "
      "\"extraInfo\": {\"timestamp\": \"1\", \"type\": \"PeerLost\"}}}' > "
      "$TORCHELASTIC_ERROR_FILE; exit 1; fi; done";
  JobProcess a = start("1:2", 1, soon(), script);
  ASSERT_SAYS(a, "attempt 0 of 1\n");
  JobProcess b = start("1:2", 1, soon(), script);
  ASSERT_SAYS(b, "of 2\n");
  ASSERT_SAYS(a, "attempt 1 of 2\n");
  write_file_atomic(cluster_.path("lost"), "now");
  b.send(SIGKILL);
  ASSERT_SAYS(a, "attempt 2 of 1\n");
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_EQ(JobProcess::count(a.err_text, "FAILED"), 0) << a.err_text;
}

TEST_F(launch_elastic, one_that_is_asked_to_stop_leaves_and_the_others_go_on) {
  JobProcess a = start("1:2", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:2", 1, soon());
  ASSERT_SAYS(b, "attempt 1 rank 1 of 2,");
  ASSERT_SAYS(a, "attempt 1 rank 0 of 2,");
  b.send(SIGTERM);
  EXPECT_EQ(b.wait(kPatience), 75) << b.err_text;
  ASSERT_SAYS(a, "attempt 2 rank 0 of 1, node 0 of 1, restarts 0\n");
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_EQ(JobProcess::count(a.err_text, "was asked to stop and leaves"), 1) << a.err_text;
}

TEST_F(launch_elastic, one_whose_workers_die_at_SIGTERM_leaves_as_well) {
  // As programs that know nothing of it, and as ranks that build their model.
  const std::string script = "echo attempt $TRIREME_ATTEMPT of $WORLD_SIZE; while [ ! -e " +
                             cluster_.path("end") + " ]; do sleep 0.05; done";
  JobProcess a = start("1:2", 1, soon(), script);
  ASSERT_SAYS(a, "attempt 0 of 1\n");
  JobProcess b = start("1:2", 1, soon(), script);
  ASSERT_SAYS(b, "attempt 1 of 2\n");
  ASSERT_SAYS(a, "attempt 1 of 2\n");
  b.send(SIGTERM);
  EXPECT_EQ(b.wait(kPatience), 143) << b.err_text;
  ASSERT_SAYS(a, "attempt 2 of 1\n");
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
}

// A scheduler that stops all hosts does so at slightly different times.
TEST_F(launch_elastic, signals_to_all_launchers_let_all_workers_save) {
  const std::string script =
      "trap 'sleep 1; echo saved $RANK; exit 75' TERM; echo attempt $TRIREME_ATTEMPT of "
      "$WORLD_SIZE; while true; do sleep 0.05; done";
  for (const bool keeper_first : {true, false}) {
    const Cluster cluster;
    const auto launcher = [&] {
      Words flags = cluster.at_c10d("1:2", 1);
      flags.push_back(soon()[0]);
      return cluster.start(flags, script);
    };
    JobProcess a = launcher();
    ASSERT_SAYS(a, "attempt 0 of 1\n");
    JobProcess b = launcher();
    ASSERT_SAYS(b, "attempt 1 of 2\n");
    ASSERT_SAYS(a, "attempt 1 of 2\n");
    (keeper_first ? a : b).send(SIGTERM);
    // The other hears of it before its own signal comes.
    ASSERT_FALSE((keeper_first ? b : a).wait_for("attempt 9", 1, std::chrono::milliseconds(400)));
    (keeper_first ? b : a).send(SIGTERM);
    EXPECT_EQ(a.wait(kPatience), 75) << a.err_text;
    EXPECT_EQ(b.wait(kPatience), 75) << b.err_text;
    EXPECT_EQ(JobProcess::count(a.out_text, "saved 0\n"), 2) << a.out_text;  // b came, and now
    EXPECT_EQ(JobProcess::count(b.out_text, "saved 1\n"), 1) << b.out_text;
  }
}

TEST_F(launch_elastic, a_fixed_number_of_nodes_elsewhere_is_refused) {
  JobProcess a = start("1:3", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("2", 1);
  EXPECT_EQ(b.wait(kPatience), 99);
  EXPECT_NE(b.err_text.find("--nnodes=1:3"), std::string::npos) << b.err_text;
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
}

TEST_F(launch_elastic, one_whose_program_cannot_start_is_a_loss_and_sits_out) {
  JobProcess a = start("1:2", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  Words flags = cluster_.at_c10d("1:2", 1);
  flags.push_back("--rdzv-conf=last_call_timeout=0");
  JobProcess b([flags, file = cluster_.secret()] {
    ::setenv("TRIREME_SECRET_FILE", file.c_str(), 1);
    return launch_workers(
        parse_run_options(flags), {"/bin/sh", "-c", "exit 0"}, FailureReport::block,
        [](const std::vector<int>&) { fail<ResourceError>("no room on this host"); });
  });
  EXPECT_EQ(b.wait(kPatience), 99) << b.err_text;
  ASSERT_SAYS(a, "attempt 2 rank 0 of 1,");
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_NE(a.err_text.find("is gone: its launcher ended"), std::string::npos) << a.err_text;
}

TEST_F(launch_elastic, a_spare_waits_and_ends_with_the_job) {
  JobProcess keeper = start("1:2", 1, soon());
  ASSERT_SAYS(keeper, "attempt 0 rank 0 of 1,");
  JobProcess member = start("1:2", 1, soon());
  ASSERT_SAYS(member, "attempt 1 rank 1 of 2,");
  JobProcess spare = start("1:2", 1, soon());
  ASSERT_TRUE(spare.wait_for_error("waits for its turn", kPatience)) << spare.err_text;
  member.send(SIGKILL);
  ASSERT_SAYS(spare, "rank 1 of 2,");
  let_end(cluster_);
  EXPECT_EQ(keeper.wait(kPatience), 0) << keeper.err_text;
  EXPECT_EQ(spare.wait(kPatience), 0) << spare.err_text;
}

TEST_F(launch_elastic, a_failure_is_one_of_max_restarts_for_all) {
  const std::string script =
      "echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE; "
      "if [ $WORLD_SIZE = 2 ]; then if [ $RANK = 1 ]; then sleep 0.3; exit 3; fi; fi; sleep 1000";
  const Words more{"--rdzv-conf=last_call_timeout=0", "--max-restarts=1"};
  JobProcess a = start("1:2", 1, more, script);
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1\n");
  JobProcess b = start("1:2", 1, more, script);
  EXPECT_EQ(b.wait(kPatience), 1) << b.err_text;
  EXPECT_EQ(a.wait(kPatience), 1) << a.err_text;
  EXPECT_EQ(b.out_text, "attempt 0 rank 1 of 2\nattempt 1 rank 1 of 2\n");
  EXPECT_EQ(JobProcess::count(b.err_text, "/bin/sh FAILED"), 1) << b.err_text;
  EXPECT_EQ(JobProcess::count(a.err_text, "(restart 1 of 1)"), 1) << a.err_text;
}

TEST_F(launch_elastic, too_few_are_given_up_with_a_sentence) {
  JobProcess a = start("2:3", 1, {"--rdzv-conf=join_timeout=2"}, "echo started");
  EXPECT_EQ(a.wait(kPatience), 1);
  EXPECT_NE(a.err_text.find("1 of at least 2 nodes were there after 2 s"), std::string::npos)
      << a.err_text;
  EXPECT_EQ(a.out_text, "");
}

TEST_F(launch_elastic, one_that_waits_can_be_stopped) {
  JobProcess a = start("2:3", 1, {}, "echo started");
  ASSERT_TRUE(a.wait_for_error("waits for its turn", kPatience)) << a.err_text;
  a.send(SIGINT);
  EXPECT_EQ(a.wait(kPatience), 130) << a.err_text;
}

// "Either agent of --nnodes 1:2": the one that keeps the store, and then the one that has kept it
// since. Who comes to the endpoint is told where it is.
TEST_F(launch_elastic, the_launcher_with_the_store_may_be_killed_and_come_back) {
  JobProcess a = start("1:2", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:2", 2, soon());
  ASSERT_SAYS(b, "attempt 1 rank 2 of 3,");
  a.send(SIGKILL);
  const auto killed = Clock::now();
  ASSERT_SAYS(b, "attempt 2 rank 1 of 2, node 0 of 1, restarts 0\n");
  EXPECT_LT(Clock::now() - killed, seconds(15));
  EXPECT_TRUE(a.wait_for_silence(kPatience));
  EXPECT_EQ(JobProcess::count(b.err_text, "this node keeps the job's store from now on, at"), 1)
      << b.err_text;
  JobProcess again = start("1:2", 1, {"--rdzv-conf=last_call_timeout=20"});
  ASSERT_SAYS(again, "attempt 3 rank 2 of 3, node 1 of 2, restarts 0\n");
  ASSERT_SAYS(b, "attempt 3 rank 0 of 3, node 0 of 2, restarts 0\n");
  b.send(SIGKILL);
  ASSERT_SAYS(again, "attempt 4 rank 0 of 1, node 0 of 1, restarts 0\n");
  let_end(cluster_);
  EXPECT_EQ(again.wait(kPatience), 0) << again.err_text;
  EXPECT_EQ(JobProcess::count(again.err_text, "FAILED"), 0) << again.err_text;
}

// A fixed number of nodes, of which the one with the store is lost: the job begins again when
// another is in its place.
TEST_F(launch_elastic, of_exactly_two_one_that_is_killed_is_waited_for) {
  const Words keeps{"--rdzv-conf=is_host=true"};
  JobProcess keeper = start("2:2", 1, keeps);
  JobProcess other = start("2:2", 1, {"--rdzv-conf=is_host=false"});
  ASSERT_SAYS(keeper, "attempt 0 rank ");
  ASSERT_SAYS(other, "attempt 0 rank ");
  keeper.send(SIGKILL);
  ASSERT_TRUE(
      other.wait_for_error(": all workers start again when there are 2 nodes: start a "
                           "launcher in the place of one that is lost, within 600 s",
                           kPatience))
      << other.err_text;
  ASSERT_TRUE(other.wait_for_error("this node keeps the job's store from now on", kPatience))
      << other.err_text;
  EXPECT_EQ(JobProcess::count(other.out_text, "attempt"), 1) << "not alone: " << other.out_text;
  JobProcess again = start("2:2", 1, keeps);
  ASSERT_SAYS(other, "attempt 1 rank 0 of 2, node 0 of 2, restarts 0\n");
  ASSERT_SAYS(again, "attempt 1 rank 1 of 2, node 1 of 2, restarts 0\n");
  let_end(cluster_);
  EXPECT_EQ(other.wait(kPatience), 0) << other.err_text;
  EXPECT_EQ(again.wait(kPatience), 0) << again.err_text;
}

TEST_F(launch_elastic, the_others_meet_where_the_first_of_them_is_and_a_spare_comes_along) {
  JobProcess a = start("1:3", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:3", 1, soon());
  ASSERT_SAYS(b, "attempt 1 rank 1 of 2,");
  JobProcess c = start("1:3", 1, soon());
  ASSERT_SAYS(c, "attempt 2 rank 2 of 3,");
  ASSERT_SAYS(b, "attempt 2 rank 1 of 3,");
  JobProcess spare = start("1:3", 1, soon());
  ASSERT_TRUE(spare.wait_for_error("waits for its turn", kPatience)) << spare.err_text;
  a.send(SIGKILL);
  ASSERT_SAYS(b, "attempt 3 rank 0 of 2,");
  ASSERT_SAYS(c, "attempt 3 rank 1 of 2,");
  ASSERT_SAYS(spare, " rank 2 of 3,");
  ASSERT_SAYS(b, "attempt 4 rank 0 of 3,");
  let_end(cluster_);
  for (JobProcess* job : {&b, &c, &spare}) EXPECT_EQ(job->wait(kPatience), 0) << job->err_text;
}

TEST_F(launch_elastic,
       the_launcher_with_the_store_leaves_it_to_the_others_when_it_is_asked_to_stop) {
  JobProcess a = start("1:2", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:2", 1, soon());
  ASSERT_SAYS(b, "attempt 1 rank 1 of 2,");
  ASSERT_SAYS(a, "attempt 1 rank 0 of 2,");
  a.send(SIGTERM);
  EXPECT_EQ(a.wait(kPatience), 75) << "its workers saved: " << a.err_text;
  ASSERT_SAYS(b, "attempt 2 rank 0 of 1, node 0 of 1, restarts 0\n");
  let_end(cluster_);
  EXPECT_EQ(b.wait(kPatience), 0) << b.err_text;
  EXPECT_EQ(JobProcess::count(b.out_text, "asked\n"), 1) << b.out_text;
}

TEST_F(launch_elastic, one_of_three_goes_on_where_the_others_are_dead_and_it_can_claim_that) {
  const Words with_file{"--rdzv-conf=last_call_timeout=0,shared_file=" + cluster_.path("claims")};
  JobProcess a = start("1:3", 1, with_file);
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:3", 1, with_file);
  ASSERT_SAYS(b, "attempt 1 rank 1 of 2,");
  JobProcess c = start("1:3", 1, with_file);
  ASSERT_SAYS(c, "attempt 2 rank 2 of 3,");
  a.send(SIGKILL);
  b.send(SIGKILL);
  ASSERT_SAYS(c, "attempt 3 rank 0 of 1,");
  EXPECT_NE(read_file(cluster_.path("claims.2")).find("\"next\":3"), std::string::npos);
  let_end(cluster_);
  EXPECT_EQ(c.wait(kPatience), 0) << c.err_text;
}

TEST_F(launch_elastic, without_a_place_to_claim_one_of_three_gives_up_by_name) {
  JobProcess a = start("1:3", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:3", 1, soon());
  ASSERT_SAYS(b, "attempt 1 rank 1 of 2,");
  JobProcess c = start("1:3", 1, soon());
  ASSERT_SAYS(c, "attempt 2 rank 2 of 3,");
  a.send(SIGKILL);
  b.send(SIGKILL);
  EXPECT_EQ(c.wait(kPatience), 1) << c.err_text;
  EXPECT_EQ(JobProcess::count(c.err_text, "--rdzv-conf shared_file=PATH"), 1) << c.err_text;
}

TEST_F(launch_elastic, started_differently_are_refused) {
  JobProcess a = start("1:3", 1, soon());
  ASSERT_SAYS(a, "attempt 0 rank 0 of 1,");
  JobProcess b = start("1:2", 1, soon());
  EXPECT_EQ(b.wait(kPatience), 99);
  EXPECT_NE(b.err_text.find("--nnodes=1:3"), std::string::npos) << b.err_text;
  let_end(cluster_);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
}

}  // namespace
}  // namespace trireme::launch::elastic_test
