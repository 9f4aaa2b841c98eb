// SPDX-License-Identifier: Apache-2.0
// The programs of docs/your_own_loop.md, as their reader would start them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/command.h"
#include "tests/support/ports.h"

namespace trireme::testing::own_loop_test {
namespace {

std::string program(const std::string& name) { return TRIREME_BUILD_DIR "/tests/own_loop_" + name; }

class cli_own_loop : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program("ddp"))) GTEST_SKIP() << "this build has no LibTorch";
  }

  /// What a program says on so many ranks.
  std::string said(const std::string& name, int ranks, const Arguments& more = {}) {
    Arguments words = trireme({"run", "--nproc-per-node", std::to_string(ranks), program(name)});
    words.insert(words.end(), more.begin(), more.end());
    Command command(words);
    EXPECT_EQ(command.finish(std::chrono::seconds(120)), 0) << command.out << command.err;
    return command.out;
  }
};

/// The number behind the last "loss ", or behind "-> ".
double last_loss(const std::string& out) {
  const size_t arrow = out.rfind("-> "),
               at = arrow == std::string::npos ? out.rfind("loss ") + 5 : arrow + 3;
  return std::atof(out.c_str() + at);
}

TEST_F(cli_own_loop, ddp_learns_alone_and_on_two_ranks) {
  for (int ranks : {1, 2}) {
    const std::string out = said("ddp", ranks, {"8"});
    EXPECT_NE(out.find("epoch 8, loss "), std::string::npos) << out;
    EXPECT_LT(last_loss(out), 0.2) << out;  // 1.39 is what guessing gives
  }
}

TEST_F(cli_own_loop, mixed_precision_and_both_stages_of_zero_learn) {
  for (const char* name : {"amp", "zero2", "zero3"})
    for (int ranks : {1, 2}) {
      const std::string out = said(name, ranks);
      EXPECT_NE(out.find(std::to_string(ranks) + " ranks, loss "), std::string::npos) << out;
      EXPECT_LT(last_loss(out), 0.5) << name << ": " << out;
    }
}

TEST_F(cli_own_loop, reproducible_mode_prints_the_same_digits_on_1_2_4_and_8_ranks) {
  const std::string one = said("reproducible", 1);
  EXPECT_EQ(one.rfind("weights ", 0), 0u) << one;
  for (int ranks : {2, 4, 8}) EXPECT_EQ(said("reproducible", ranks), one) << ranks;
}

// Two ranks that nobody watches: the program itself says what happened to the other.
TEST_F(cli_own_loop, a_lost_rank_is_caught_by_name) {
  const std::string port = std::to_string(free_tcp_port());
  const auto rank = [&](int r) {
    return CommandOptions{{{"RANK", std::to_string(r)},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", std::to_string(r)},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port},
                           {"OMP_NUM_THREADS", "1"}},
                          {}};
  };
  Command survivor({program("ddp"), "100000"}, rank(0)),
      victim({program("ddp"), "100000"}, rank(1));
  ASSERT_TRUE(survivor.wait_for("epoch 1")) << survivor.err << victim.err;
  victim.send(SIGKILL);
  EXPECT_EQ(survivor.finish(std::chrono::seconds(15)), 75) << survivor.err;
  EXPECT_NE(survivor.err.find("lost rank 1: "), std::string::npos) << survivor.err;
  victim.finish(std::chrono::seconds(5));
}

}  // namespace
}  // namespace trireme::testing::own_loop_test
