// SPDX-License-Identifier: Apache-2.0
// --nnodes: launchers that meet and start one job. Each is a process of its own, as on its own
// host.
#include "trireme/launch/nodes/nodes.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "tests/launch/cluster.h"
#include "tests/support/fault_times.h"
#include "trireme/base/file.h"
#include "trireme/launch/job_store.h"
#include "trireme/launch/placement.h"
#include "trireme/net/address.h"
#include "trireme/net/secret.h"

namespace trireme::launch::nodes_test {
namespace {

using std::chrono::seconds;

constexpr Duration kPatience = seconds(45);

TEST(launch_placement, ranks_are_unique_and_consecutive_on_every_node) {
  for (int a = 1; a <= 3; ++a)
    for (int b = 1; b <= 3; ++b)
      for (int c = 1; c <= 3; ++c) {
        const std::vector<int> workers{a, b, c};
        int next = 0;
        for (int node = 0; node < 3; ++node)
          for (int local = 0; local < workers[static_cast<size_t>(node)]; ++local) {
            const Placement at = place(workers, node, local);
            EXPECT_EQ(at.rank, next++);
            EXPECT_EQ(at.local_rank, local);
            EXPECT_EQ(at.node_rank, node);
            EXPECT_EQ(at.world, a + b + c);
            EXPECT_EQ(at.local_world, workers[static_cast<size_t>(node)]);
            EXPECT_EQ(at.nodes, 3);
          }
      }
  EXPECT_THROW(place({2, 2}, 2, 0), UsageError);
  EXPECT_THROW(place({2, 2}, 1, 2), UsageError);
}

TEST(launch_stop_cause, comes_back_as_it_was_sent_and_other_words_are_refused) {
  const StopCause cause{3, "rank 7 (pid 1) \"failed\"", "Error: \n", true};
  EXPECT_EQ(read_stop_cause(to_text(cause)), cause);
  for (const char* bad : {"", "{}", "all done", "[1]", R"({"node": "x"})"})
    EXPECT_THROW(read_stop_cause(bad), Corrupt) << bad;
}

const char* const kSayWho =
    "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of "
    "$GROUP_WORLD_SIZE, $MASTER_ADDR $TORCHELASTIC_RUN_ID";

TEST(launch_nodes, of_unequal_size_give_every_worker_its_rank) {
  const Cluster cluster;
  JobProcess one = cluster.start(cluster.at_static(2, 1, 1), kSayWho);
  JobProcess zero = cluster.start(cluster.at_static(2, 0, 2), kSayWho);
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 0) << one.err_text;
  for (const char* line : {"rank 0 of 3, local 0 of 2, node 0 of 2, 127.0.0.1 cluster\n",
                           "rank 1 of 3, local 1 of 2, node 0 of 2, 127.0.0.1 cluster\n"})
    EXPECT_EQ(JobProcess::count(zero.out_text, line), 1) << zero.out_text;
  EXPECT_EQ(one.out_text, "rank 2 of 3, local 0 of 1, node 1 of 2, 127.0.0.1 cluster\n");
}

TEST(launch_nodes, meet_under_c10d_and_are_numbered_as_they_come) {
  const Cluster cluster;
  JobProcess a = cluster.start(cluster.at_c10d(2, 1), "echo rank $RANK of $WORLD_SIZE");
  JobProcess b = cluster.start(cluster.at_c10d(2, 1), "echo rank $RANK of $WORLD_SIZE");
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_EQ(b.wait(kPatience), 0) << b.err_text;
  const std::string both = a.out_text + b.out_text;
  EXPECT_EQ(JobProcess::count(both, "rank 0 of 2\n"), 1) << both;
  EXPECT_EQ(JobProcess::count(both, "rank 1 of 2\n"), 1) << both;
}

TEST(launch_nodes, a_failure_on_one_ends_all_and_each_says_which_rank) {
  const Cluster cluster;
  const char* script = "if [ $RANK = 2 ]; then exit 3; fi; sleep 1000";
  JobProcess zero = cluster.start(cluster.at_static(2, 0, 2), script);
  JobProcess one = cluster.start(cluster.at_static(2, 1, 1), script);
  EXPECT_EQ(zero.wait(kPatience), 1) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 1) << one.err_text;
  EXPECT_EQ(JobProcess::count(one.err_text, "/bin/sh FAILED"), 1) << one.err_text;
  EXPECT_NE(one.err_text.find("rank      : 2 (local_rank: 0)"), std::string::npos) << one.err_text;
  EXPECT_EQ(JobProcess::count(zero.err_text, "FAILED"), 0) << zero.err_text;
  EXPECT_EQ(JobProcess::count(zero.err_text, ") failed with exit code 3: the workers of this node"),
            1)
      << zero.err_text;
  EXPECT_EQ(JobProcess::count(zero.err_text + one.err_text, "--nnodes=MIN"), 0) << "nobody is lost";
}

TEST(launch_nodes, start_all_their_workers_again_after_a_failure_on_one) {
  const Cluster cluster;
  const std::string script =
      "echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK; "
      "echo x > " +
      cluster.path("$RANK.$TORCHELASTIC_RESTART_COUNT") +
      "; "
      "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then "
      "while [ ! -e " +
      cluster.path("0.$TORCHELASTIC_RESTART_COUNT") +
      " ]; do sleep 0.02; done; "
      "exit 3; fi; "
      "if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then sleep 1000; fi";
  const Words more{"--max-restarts=2"};
  JobProcess zero = cluster.start(Cluster::with(cluster.at_static(2, 0, 1), more), script);
  JobProcess one = cluster.start(Cluster::with(cluster.at_static(2, 1, 1), more), script);
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 0) << one.err_text;
  EXPECT_EQ(zero.out_text, "attempt 0 rank 0\nattempt 1 rank 0\nattempt 2 rank 0\n");
  EXPECT_EQ(one.out_text, "attempt 0 rank 1\nattempt 1 rank 1\nattempt 2 rank 1\n");
  for (const JobProcess* job : {&zero, &one})
    EXPECT_EQ(
        JobProcess::count(job->err_text,
                          ") failed with exit code 3: all workers start again (restart 2 of 2)"),
        1)
        << job->err_text;
}

TEST(launch_nodes, workers_that_ended_well_start_again_with_the_others) {
  const Cluster cluster;
  const std::string done = cluster.path("done");
  const std::string script =
      "echo attempt $TORCHELASTIC_RESTART_COUNT; if [ $RANK = 0 ]; then echo x >> " + done +
      "; exit 0; fi; if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then while [ ! -e " + done +
      " ]; do sleep 0.02; done; exit 4; fi";
  const Words more{"--max-restarts=1"};
  JobProcess zero = cluster.start(Cluster::with(cluster.at_static(2, 0, 1), more), script);
  JobProcess one = cluster.start(Cluster::with(cluster.at_static(2, 1, 1), more), script);
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 0) << one.err_text;
  EXPECT_EQ(zero.out_text, "attempt 0\nattempt 1\n");
  EXPECT_EQ(one.out_text, "attempt 0\nattempt 1\n");
}

const char* const kWhatWouldGoOn =
    "a job of --nnodes=2 ends with the first node that is lost. With --nnodes=2:2 it waits for "
    "another launcher in its place, and with --nnodes=MIN:2 it goes on without; such nodes meet by "
    "--rdzv-backend=c10d or etcd\n";

TEST(launch_nodes, a_launcher_that_is_killed_is_named_and_its_workers_are_gone) {
  const Cluster cluster;
  const char* script = "echo ready; sleep 1000";
  JobProcess zero = cluster.start(cluster.at_static(2, 0, 1), script);
  JobProcess one = cluster.start(cluster.at_static(2, 1, 1), script);
  ASSERT_TRUE(zero.wait_for("ready\n", 1, kPatience)) << zero.err_text;
  ASSERT_TRUE(one.wait_for("ready\n", 1, kPatience)) << one.err_text;
  one.send(SIGKILL);
  const auto start = Clock::now();
  EXPECT_EQ(zero.wait(kPatience), 1) << zero.err_text;
  trireme::testing::fault_took("killed launcher of several", start);
  EXPECT_LT(Clock::now() - start, seconds(15));  // 5 are promised
  EXPECT_EQ(JobProcess::count(zero.err_text, "node 1 ("), 1) << zero.err_text;
  EXPECT_EQ(JobProcess::count(zero.err_text, kWhatWouldGoOn), 1) << zero.err_text;
  EXPECT_TRUE(one.wait_for_silence(kPatience));
}

TEST(launch_nodes, the_end_of_the_launcher_with_the_store_ends_the_others) {
  const Cluster cluster;
  const char* script = "echo ready; sleep 1000";
  JobProcess zero = cluster.start(cluster.at_static(2, 0, 1), script);
  JobProcess one = cluster.start(cluster.at_static(2, 1, 1), script);
  ASSERT_TRUE(zero.wait_for("ready\n", 1, kPatience)) << zero.err_text;
  ASSERT_TRUE(one.wait_for("ready\n", 1, kPatience)) << one.err_text;
  zero.send(SIGKILL);
  const auto start = Clock::now();
  EXPECT_EQ(one.wait(kPatience), 1) << one.err_text;
  trireme::testing::fault_took("killed launcher with the store", start);
  EXPECT_LT(Clock::now() - start, seconds(15));
  EXPECT_EQ(JobProcess::count(one.err_text, "the launcher that keeps the job's store"), 1)
      << one.err_text;
  EXPECT_EQ(JobProcess::count(one.err_text, kWhatWouldGoOn), 1) << one.err_text;
}

TEST(launch_nodes, a_signal_to_one_launcher_stops_all) {
  const Cluster cluster;
  const char* script = "echo ready; sleep 1000";
  JobProcess zero = cluster.start(cluster.at_static(2, 0, 1), script);
  JobProcess one = cluster.start(cluster.at_static(2, 1, 1), script);
  ASSERT_TRUE(zero.wait_for("ready\n", 1, kPatience)) << zero.err_text;
  ASSERT_TRUE(one.wait_for("ready\n", 1, kPatience)) << one.err_text;
  one.send(SIGTERM);
  EXPECT_EQ(one.wait(kPatience), 143) << one.err_text;
  EXPECT_EQ(zero.wait(kPatience), 1) << zero.err_text;
  EXPECT_EQ(JobProcess::count(zero.err_text, ") was asked to stop by SIGTERM"), 1) << zero.err_text;
}

TEST(launch_nodes, workers_that_saved_and_left_on_all_nodes_end_the_job_with_their_code) {
  const Cluster cluster;
  const Words more{"--max-restarts=3"};
  JobProcess zero = cluster.start(Cluster::with(cluster.at_static(2, 0, 1), more), "exit 75");
  JobProcess one =
      cluster.start(Cluster::with(cluster.at_static(2, 1, 1), more), "sleep 0.3; exit 75");
  EXPECT_EQ(zero.wait(kPatience), 75) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 75) << one.err_text;
}

TEST(launch_nodes, that_do_not_come_are_named_when_the_time_is_over) {
  const Cluster cluster;
  // Node 2 is more patient: who has given up by then is missing, too.
  const Words more{"--rdzv-conf=join_timeout=4"}, longer{"--rdzv-conf=join_timeout=60"};
  JobProcess zero = cluster.start(Cluster::with(cluster.at_static(3, 0, 1), more), "echo started");
  JobProcess two = cluster.start(Cluster::with(cluster.at_static(3, 2, 1), longer), "echo started");
  EXPECT_EQ(zero.wait(kPatience), 99);
  two.wait(kPatience);
  EXPECT_NE(zero.err_text.find("node 1 of 3 did not come to 127.0.0.1:"), std::string::npos)
      << zero.err_text;
  EXPECT_NE(zero.err_text.find("waits for node 1 of 3"), std::string::npos) << zero.err_text;
  EXPECT_EQ(zero.out_text + two.out_text, "");
}

// Debian gives a host's own name a loopback address.
TEST(launch_nodes, meet_under_c10d_at_this_hosts_name_whatever_its_address) {
  try {
    net::resolve({net::host_name(), 0});
  } catch (const ResourceError& error) {
    GTEST_SKIP() << error.what();
  }
  const Cluster cluster;
  Words flags = cluster.at_c10d(2, 1);
  for (std::string& flag : flags)
    if (const size_t at = flag.find("=127.0.0.1:"); at != std::string::npos)
      flag.replace(at + 1, 9, net::host_name());
  JobProcess one = cluster.start(flags, "echo rank $RANK"), two = cluster.start(flags, "true");
  EXPECT_EQ(one.wait(kPatience), 0) << one.err_text;
  EXPECT_EQ(two.wait(kPatience), 0) << two.err_text;
}

// A pod's name comes into the name service after the pod.
TEST(launch_nodes, a_meeting_place_whose_name_is_not_known_yet_is_waited_for) {
  const Cluster cluster;
  const Words flags{"--nnodes=2", "--node-rank=0", "--master-addr=no-such-host.invalid"};
  JobProcess late = cluster.start(Cluster::with(flags, {"--rdzv-conf=join_timeout=1"}), "true");
  JobProcess waits = cluster.start(flags, "true");
  EXPECT_EQ(late.wait(kPatience), 99);
  EXPECT_NE(late.err_text.find("cannot resolve host 'no-such-host.invalid'"), std::string::npos)
      << late.err_text;
  ASSERT_TRUE(waits.wait_for_error("trying on", kPatience)) << waits.err_text;
  waits.send(SIGTERM);
  EXPECT_EQ(waits.wait(kPatience), 128 + SIGTERM) << waits.err_text;
}

TEST(launch_nodes, one_that_waits_can_be_stopped_and_comes_again) {
  const Cluster cluster;
  JobProcess early = cluster.start(cluster.at_static(2, 1, 1), "echo started");
  JobProcess zero = cluster.start(cluster.at_static(2, 0, 1), "echo started");
  // It is stopped while it waits for the store or, a moment later, for node 0's seat.
  early.send(SIGINT);
  const int code = early.wait(kPatience);
  if (code == 0) GTEST_SKIP() << "the job was over before the signal came";
  EXPECT_EQ(code, 130) << early.err_text;
  EXPECT_EQ(early.out_text, "");
  JobProcess again = cluster.start(cluster.at_static(2, 1, 1), "echo started");
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(again.wait(kPatience), 0) << again.err_text;
}

TEST(launch_nodes, a_number_that_is_taken_is_refused_and_the_job_goes_on) {
  const Cluster cluster;
  JobProcess zero = cluster.start(cluster.at_static(3, 0, 1), "echo started");
  JobProcess one = cluster.start(cluster.at_static(3, 1, 1), "echo started");
  JobProcess other = cluster.start(cluster.at_static(3, 1, 1), "echo started");
  // One of the two is the second.
  const auto second_of = [&]() -> JobProcess* {
    const auto deadline = Deadline::after(kPatience);
    while (!deadline.expired())
      for (JobProcess* job : {&one, &other})
        if (job->wait_for_silence(std::chrono::milliseconds(100))) return job;
    return nullptr;
  };
  const auto begin = Clock::now();
  JobProcess* second = second_of();
  trireme::testing::fault_took("two launchers as one", begin);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->wait(kPatience), 99);
  EXPECT_NE(second->err_text.find("node 1 of this job is taken already"), std::string::npos)
      << second->err_text;
  JobProcess two = cluster.start(cluster.at_static(3, 2, 1), "echo started");
  JobProcess* first = second == &one ? &other : &one;
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(first->wait(kPatience), 0) << first->err_text;
  EXPECT_EQ(two.wait(kPatience), 0) << two.err_text;
}

TEST(launch_nodes, started_differently_are_refused_with_both_lines) {
  const Cluster cluster;
  JobProcess zero = cluster.start(
      Cluster::with(cluster.at_static(2, 0, 1), {"--rdzv-conf=join_timeout=20"}), "echo started");
  ASSERT_TRUE(zero.pid() > 0);
  JobProcess one = cluster.start(Cluster::with(cluster.at_static(2, 1, 1), {"--max-restarts=2"}),
                                 "echo started");
  EXPECT_EQ(one.wait(kPatience), 99);
  EXPECT_NE(one.err_text.find("--max-restarts=2"), std::string::npos) << one.err_text;
  EXPECT_NE(one.err_text.find("--max-restarts=0"), std::string::npos) << one.err_text;
  const Words minute{"--max-restarts=2", "--restart-window=60"};
  JobProcess two = cluster.start(Cluster::with(cluster.at_static(2, 1, 1), minute), "echo started");
  EXPECT_EQ(two.wait(kPatience), 99);
  EXPECT_NE(two.err_text.find("--max-restarts=2; --restart-window=60"), std::string::npos)
      << two.err_text;
}

TEST(launch_nodes, a_wrong_secret_and_none_are_refused) {
  const Cluster cluster;
  const std::string wrong = cluster.path("wrong");
  write_secret(wrong, net::generate_secret());
  JobProcess zero = cluster.start(
      Cluster::with(cluster.at_static(2, 0, 1), {"--rdzv-conf=join_timeout=20"}), "echo started");
  const auto begin = Clock::now();
  JobProcess one = cluster.start(cluster.at_static(2, 1, 1), "echo started", wrong);
  EXPECT_EQ(one.wait(kPatience), 99);
  trireme::testing::fault_took("wrong secret", begin);
  EXPECT_NE(one.err_text.find("secret"), std::string::npos) << one.err_text;
  JobProcess insecure([words = cluster.at_static(2, 1, 1)] {
    ::unsetenv("TRIREME_SECRET_FILE");
    ::setenv("TRIREME_INSECURE", "1", 1);
    return launch_workers(parse_run_options(words), {"/bin/true"});
  });
  EXPECT_EQ(insecure.wait(kPatience), 99);
  EXPECT_NE(insecure.err_text.find("several nodes meet over TCP, and that takes a secret"),
            std::string::npos)
      << insecure.err_text;
}

}  // namespace
}  // namespace trireme::launch::nodes_test
