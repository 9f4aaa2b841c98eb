// SPDX-License-Identifier: Apache-2.0
// A job whose nodes reach each other by a poor link.
#include "tests/support/slow_link.h"

#include <gtest/gtest.h>

#include "tests/launch/cluster.h"

namespace trireme::launch::slow_link_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using trireme::testing::SlowLink;

constexpr Duration kPatience = seconds(60);

TEST(launch_slow_link, a_late_and_narrow_one_ends_no_job_and_blames_nobody) {
  const Cluster cluster;
  const SlowLink link(cluster.port(), {milliseconds(100), 20'000});
  const auto node = [&](int port, const char* keeps_store) {
    return Words{"--nnodes=2",
                 "--nproc-per-node=1",
                 "--rdzv-backend=c10d",
                 "--rdzv-endpoint=127.0.0.1:" + std::to_string(port),
                 "--rdzv-id=cluster",
                 "--local-addr=127.0.0.1",
                 std::string("--rdzv-conf=is_host=") + keeps_store};
  };
  const char* script = "echo rank $RANK of $WORLD_SIZE";
  JobProcess zero = cluster.start(node(cluster.port(), "true"), script);
  JobProcess one = cluster.start(node(link.port(), "false"), script);
  EXPECT_EQ(zero.wait(kPatience), 0) << zero.err_text;
  EXPECT_EQ(one.wait(kPatience), 0) << one.err_text;
  const std::string out = zero.out_text + one.out_text, err = zero.err_text + one.err_text;
  EXPECT_EQ(JobProcess::count(out, " of 2\n"), 2) << out;
  for (const char* blame : {"gone", "alike", "clock", "error"})
    EXPECT_EQ(err.find(blame), std::string::npos) << err;
}

}  // namespace
}  // namespace trireme::launch::slow_link_test
