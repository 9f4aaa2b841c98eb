// SPDX-License-Identifier: Apache-2.0
// What the launchers of several nodes compare before their workers start.
#include "trireme/launch/nodes/compare_nodes.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/launch/cluster.h"

namespace trireme::launch::compare_nodes_test {
namespace {

constexpr Duration kPatience = std::chrono::seconds(45);

/// A launcher that has these limits, or says this of itself.
JobProcess start(const Cluster& cluster, const Words& flags, int files,
                 const std::vector<Fact>& facts = {}) {
  return JobProcess([&cluster, flags, files, facts] {
    ::setenv("TRIREME_SECRET_FILE", cluster.secret().c_str(), 1);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(files);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    RunOptions options = parse_run_options(flags);
    options.facts = facts;
    return launch_workers(options, {"/bin/sh", "-c", "echo rank $RANK"});
  });
}

TEST(launch_compare_nodes, alike_they_say_nothing_and_unlike_node_0_shows_a_table) {
  const Cluster cluster;
  JobProcess zero = start(cluster, cluster.at_static(2, 0, 2), 512);
  JobProcess one = start(cluster, cluster.at_static(2, 1, 1), 256);
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 0) << one.err_text;
  EXPECT_NE(zero.err_text.find("not all is alike where this job runs"), std::string::npos)
      << zero.err_text;
  EXPECT_NE(zero.err_text.find("open files (ulimit -n) | 512       | 256"), std::string::npos)
      << zero.err_text;
  EXPECT_NE(zero.err_text.find("| ranks 0-1 | rank 2"), std::string::npos) << zero.err_text;
  EXPECT_EQ(one.err_text.find("alike"), std::string::npos) << one.err_text;

  const Cluster again;
  JobProcess a = start(again, again.at_c10d(2, 1), 256), b = start(again, again.at_c10d(2, 1), 256);
  EXPECT_EQ(a.wait(kPatience), 0) << a.err_text;
  EXPECT_EQ(b.wait(kPatience), 0) << b.err_text;
  EXPECT_EQ((a.err_text + b.err_text).find("alike"), std::string::npos) << a.err_text << b.err_text;
}

TEST(launch_compare_nodes, what_must_agree_and_does_not_ends_all_before_a_worker_starts) {
  for (const bool come_and_go : {false, true}) {
    const Cluster cluster;
    const std::string nodes = come_and_go ? "1:2" : "2";
    const auto flags = [&] {
      return come_and_go
                 ? Cluster::with(cluster.at_c10d(nodes, 1), {"--rdzv-conf=last_call_timeout=20"})
                 : cluster.at_c10d(nodes, 1);
    };
    JobProcess a = start(cluster, flags(), 512, {{"wheel", "1", true}});
    JobProcess b = start(cluster, flags(), 512, {{"wheel", "2", true}});
    // 99: the launcher threw what its command would end with 2 for.
    EXPECT_EQ(a.wait(kPatience), come_and_go ? 1 : 99) << a.err_text;
    EXPECT_EQ(b.wait(kPatience), come_and_go ? 1 : 99) << b.err_text;
    for (const JobProcess* job : {&a, &b}) {
      EXPECT_NE(job->err_text.find("rank 1 has another wheel than rank 0 ("), std::string::npos)
          << job->err_text;
      EXPECT_EQ(job->out_text, "") << "a worker started";
    }
  }
}

}  // namespace
}  // namespace trireme::launch::compare_nodes_test
