// SPDX-License-Identifier: Apache-2.0
// Workers that a launcher of ours starts, by their roles.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/launch/cluster.h"
#include "tests/launch/job_process.h"
#include "tests/support/paths.h"

namespace trireme::rpc_launched_test {
namespace {

using launch::JobProcess;
using std::chrono::seconds;

std::string worker() { return testing::build_path("/tests/rpc_worker"); }

}  // namespace

TEST(rpc_meet_launched, servers_and_trainers_find_each_other_by_their_roles) {
  JobProcess job({"--role=server=1", "--role=trainer=2"}, "exec " + worker());
  EXPECT_EQ(job.wait(seconds(60)), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "trainer0 got 4 from server0\n"), 1) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "trainer1 got 9 from server0\n"), 1) << job.out_text;
}

TEST(rpc_meet_launched, after_a_restart_all_of_them_meet_anew) {
  JobProcess job({"--role=server=1", "--role=trainer=2", "--max-restarts=1"},
                 "exec " + worker() + " 1");
  EXPECT_EQ(job.wait(seconds(60)), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "trainer1 got 9 from server0\n"), 2) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "all workers start again"), 1) << job.err_text;
}

TEST(rpc_meet_launched, workers_of_two_nodes_find_each_other_in_the_launchers_store) {
  const launch::Cluster cluster;
  std::vector<std::unique_ptr<JobProcess>> nodes;
  for (const int node : {0, 1})
    nodes.push_back(std::make_unique<JobProcess>([&cluster, node] {
      ::setenv("TRIREME_SECRET_FILE", cluster.secret().c_str(), 1);
      return launch::launch_workers(
          launch::parse_run_options(launch::Cluster::with(cluster.at_static(2, node, 1),
                                                          {"--role=server=1", "--role=trainer=1"})),
          {worker()});
    }));
  EXPECT_EQ(nodes[0]->wait(seconds(60)), 0) << nodes[0]->err_text;
  EXPECT_EQ(nodes[1]->wait(seconds(60)), 0) << nodes[1]->err_text;
  EXPECT_EQ(nodes[1]->out_text, "trainer0 got 4 from server0\n");
}

}  // namespace trireme::rpc_launched_test
