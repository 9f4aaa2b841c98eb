// SPDX-License-Identifier: Apache-2.0
// Wall clocks that jump, and that differ between the hosts of a job: time that counts only goes
// forward.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "tests/faults/job.h"
#include "tests/support/fault_times.h"
#include "tests/support/paths.h"
#include "tests/support/sanitized.h"
#include "trireme/base/file.h"
#include "trireme/launch/free_port.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

namespace trireme::testing::clock_test {
namespace {

class faults_clock : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer wants to be loaded first";
    set(0);
  }
  /// In place, because it is mapped.
  void set(double seconds) const {
    std::fstream file(folder_ / "clock", std::ios::binary | std::ios::in | std::ios::out);
    if (!file) file.open(folder_ / "clock", std::ios::binary | std::ios::out);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  }
  Environment with_clock(Environment more) const {
    more["LD_PRELOAD"] = build_path("/tests/libtest_clock_jump.so");
    more["TRIREME_TEST_CLOCK"] = folder_ / "clock";
    return more;
  }

  PrivateFolder folder_{"trireme-test"};
};

TEST_F(faults_clock, that_jumps_by_a_day_forth_and_back_disturbs_no_run) {
  const std::string config = write(folder_ / "tiny.json", kTinyMlp), run = folder_ / "run";
  Command train(trireme({"train", config, "--nproc-per-node", "2", "--run-dir", run, "--steps",
                         "200", "--hang-timeout", "5", "--set", "checkpoint.every=50", "--set",
                         "checkpoint.every_minutes=1", "--set", "steps_per_print=1"}),
                {with_clock(kSlowSteps), {}});
  ASSERT_TRUE(train.wait_for("step: 20/200")) << train.err;
  set(86400);
  ASSERT_TRUE(train.wait_for("step: 90/200")) << train.err;
  set(-86400);
  const auto begin = Clock::now();
  ASSERT_EQ(train.finish(), 0) << train.err;
  fault_took("wall clock jump", begin);
  EXPECT_EQ(train.err.find("warning"), std::string::npos) << train.err;
  std::vector<int64_t> all(200);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps_in(run + "/metrics.jsonl"), all);
  EXPECT_EQ(latest_step(run), 200);
  int uses = 0;  // every 100 steps
  for (const auto& line : json_lines(run + "/metrics.jsonl"))
    uses += line.value("event", "") == "use";
  EXPECT_EQ(uses, 2);
  // The jump itself is no minute that has passed.
  for (const auto& step : step_folders(run)) EXPECT_EQ(std::stoi(step.substr(5)) % 50, 0) << step;
}

TEST_F(faults_clock, that_differs_by_an_hour_is_said_before_the_workers_start) {
  launch::write_secret(folder_ / "secret", net::generate_secret());
  const std::string port = std::to_string(launch::free_port());
  const auto words = [&](int node) {
    return trireme({"run", "--nnodes=2", "--node-rank=" + std::to_string(node),
                    "--master-addr=127.0.0.1", "--master-port=" + port, "sh", "-c", "echo done"});
  };
  set(3600);
  const Environment secret{{"TRIREME_SECRET_FILE", folder_ / "secret"}};
  Command one(words(1), {with_clock(secret), {}});
  Command zero(words(0), {secret, {}});
  EXPECT_EQ(zero.finish(), 0) << zero.err;
  EXPECT_EQ(one.finish(), 0) << one.err;
  const size_t at = zero.err.find("ahead by 3");
  ASSERT_NE(at, std::string::npos) << zero.err;
  EXPECT_NEAR(std::stod(zero.err.substr(at + 9)), 3600, 5) << zero.err;
}

}  // namespace
}  // namespace trireme::testing::clock_test
