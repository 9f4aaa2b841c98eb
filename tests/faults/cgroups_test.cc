// SPDX-License-Identifier: Apache-2.0
// Hosts that the system freezes, and ranks that it kills for want of memory.
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/fault_times.h"
#include "tests/support/freezer.h"
#include "tests/support/memory_limit.h"
#include "tests/support/sanitized.h"
#include "trireme/base/file.h"
#include "trireme/launch/free_port.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

namespace trireme::testing::cgroups_test {
namespace {

/// The program, in a cgroup from its first moment.
Arguments inside(const std::string& procs, const Arguments& program) {
  Arguments words{"sh", "-c", "echo $$ > " + procs + " && exec \"$@\"", "sh"};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

TEST(faults_freezer, a_host_that_stands_still_for_seconds_delays_the_job_and_is_not_blamed) {
  const Freezer freezer;
  if (!freezer.why().empty()) GTEST_SKIP() << freezer.why();
  PrivateFolder folder("trireme-test");
  launch::write_secret(folder / "secret", net::generate_secret());
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  const std::string port = std::to_string(launch::free_port());
  const auto words = [&](int node) {
    return trireme({"train", config, "--nnodes=2", "--node-rank=" + std::to_string(node),
                    "--master-addr=127.0.0.1", "--master-port=" + port, "--run-dir", folder / "run",
                    "--steps=100", "--hang-timeout=2", "--set", "steps_per_print=1"});
  };
  Environment environment = kSlowSteps;
  environment["TRIREME_SECRET_FILE"] = folder / "secret";
  Command one(inside(freezer.procs(), words(1)), {environment, {}});
  Command zero(words(0), {environment, {}});
  ASSERT_TRUE(zero.wait_for("step: 20/100", seconds(60))) << zero.err << one.err;
  ASSERT_TRUE(freezer.freeze());
  ::usleep(4'000'000);  // twice the hang limit
  ASSERT_TRUE(freezer.thaw());
  const auto thawed = Clock::now();
  EXPECT_EQ(zero.finish(seconds(60)), 0) << zero.err;
  EXPECT_EQ(one.finish(seconds(60)), 0) << one.err;
  fault_took("frozen host", thawed);
  for (const Command* job : {&zero, &one}) {
    EXPECT_EQ(job->err.find("hangs"), std::string::npos) << job->err;
    EXPECT_EQ(job->err.find("gone"), std::string::npos) << job->err;
  }
  EXPECT_EQ(steps_in(folder / "run/metrics.jsonl").size(), 100u);
}

TEST(faults_memory_limit, a_rank_that_the_kernel_kills_for_it_is_named_with_the_limit) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs more memory than the limit";
  const MemoryLimit limit(size_t{256} << 20);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  // Rank 1 keeps all that it reads until there is a line's end.
  const std::string script = "if [ $RANK = 1 ]; then exec tail /dev/zero; fi; exec sleep 1000";
  const auto begin = Clock::now();
  Command job(inside(limit.procs(), trireme({"run", "--nproc-per-node", "2", "sh", "-c", script})));
  EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
  fault_took("memory limit", begin);
  EXPECT_LT(seconds_since(begin), 5 * kSlack);
  EXPECT_TRUE(holds_all(job.err, {"rank      : 1 (local_rank: 1)", "Signal 9 (SIGKILL)",
                                  "killed by the kernel for want of memory", "limit 256 MiB"}))
      << job.err;
  EXPECT_TRUE(job.left_nothing());
}

}  // namespace
}  // namespace trireme::testing::cgroups_test
