// SPDX-License-Identifier: Apache-2.0
// The programs of docs/your_own_loop.md, as their reader would start them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/ports.h"
#include "trireme/base/file.h"

namespace trireme::testing::own_loop_test {
namespace {

std::string program(const std::string& name) {
  return trireme::testing::build_path("/tests/own_loop_") + name;
}

class cli_own_loop : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
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

TEST_F(cli_own_loop, three_axes_learn_alike_in_every_layout) {
  auto after_10_steps = [](const std::string& out) {
    return std::atof(out.c_str() + out.find("loss ") + 5);
  };
  const std::string alone = said("three_axes", 1);
  EXPECT_LT(last_loss(alone), 1.5) << alone;  // 4.16 is what guessing gives
  struct Layout {
    int ranks;
    Arguments words;
  };
  for (const auto& [ranks, words] :
       std::vector<Layout>{{2, {"1", "2"}}, {4, {"4", "1", "gpipe"}}, {8, {"2", "2", "zb_h1"}}}) {
    const std::string out = said("three_axes", ranks, words);
    EXPECT_NEAR(after_10_steps(out), after_10_steps(alone), 2e-3) << out << alone;
    EXPECT_NEAR(last_loss(out), last_loss(alone), 0.1) << out << alone;
  }
}

std::vector<double> losses_of(const std::string& out) {
  std::vector<double> losses;
  for (size_t at = out.find("loss "); at != std::string::npos; at = out.find("loss ", at + 1))
    losses.push_back(std::atof(out.c_str() + at + 5));
  return losses;
}

TEST_F(cli_own_loop, a_divided_transformer_has_the_losses_of_torch_nns) {
  const std::string whole = said("transformer", 1, {});
  const auto want = losses_of(whole);
  ASSERT_EQ(want.size(), 15u) << whole;
  EXPECT_LT(want.back(), want.front() - 0.5) << whole;
  struct Layout {
    int ranks;
    Arguments words;
  };
  for (const auto& [ranks, words] :
       std::vector<Layout>{{1, {}}, {2, {"1", "2"}}, {8, {"2", "2"}}}) {
    const std::string out = said("from_transformer", ranks, words);
    const auto got = losses_of(out);
    ASSERT_EQ(got.size(), want.size()) << out;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 5e-5) << "step " << i + 1 << " on " << ranks << " ranks";
  }
}

TEST_F(cli_own_loop, wrapped_stages_have_the_losses_of_the_whole_network) {
  const auto want = losses_of(said("transformer", 1, {}));
  ASSERT_EQ(want.size(), 15u);
  for (const Arguments& words :
       {Arguments{"ddp", "1f1b"}, Arguments{"zero2", "zb_h1"}, Arguments{"zero3", "gpipe"}}) {
    const std::string out = said("stage_replicas", 4, words);
    const auto got = losses_of(out);
    ASSERT_EQ(got.size(), want.size()) << out;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 5e-5) << words[0] << ", step " << i + 1;
  }
}

// Of code: its reader is to see all of it at once.
TEST_F(cli_own_loop, a_transformer_is_taken_to_three_axes_in_a_hundred_lines) {
  std::istringstream text(
      read_file(trireme::testing::source_path("/examples/own_loop/from_transformer.cc")));
  int lines = 0;
  for (std::string line; std::getline(text, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line.compare(first, 2, "//") != 0) ++lines;
    const bool several = line.find("for (") != line.npos || line.find("if (") != line.npos;
    EXPECT_LE(std::count(line.begin(), line.end(), ';'), several ? 3 : 1)
        << "one statement a line: " << line;
  }
  EXPECT_LE(lines, 100);
  EXPECT_GE(lines, 50);
}

/// What `own_loop_checkpoint` says: the line of its loss, and the digits of its weights.
struct Result {
  std::string step, weights;
  double loss = 0;
};

class cli_own_loop_checkpoint : public cli_own_loop {
 protected:
  Result ran(const std::string& mode, int ranks, const std::string& run_dir, int steps) {
    const std::string out = said("checkpoint", ranks, {mode, run_dir, std::to_string(steps)});
    const size_t step = out.find("step " + std::to_string(steps) + ", loss "),
                 weights = out.find("weights ");
    EXPECT_TRUE(step != std::string::npos && weights != std::string::npos) << out;
    if (step == std::string::npos || weights == std::string::npos) return {};
    return {out.substr(step, out.find('\n', step) - step), out.substr(weights), last_loss(out)};
  }
  PrivateFolder folder_;
};

// Epochs have 16 steps: 10, 20 and 30 are in the middle of one.
TEST_F(cli_own_loop_checkpoint, a_resumed_program_ends_with_the_bits_of_one_that_was_not) {
  for (const char* mode : {"ddp", "zero2", "zero3"}) {
    const std::string whole = folder_ / (std::string(mode) + "-whole"),
                      parts = folder_ / (std::string(mode) + "-parts");
    const Result want = ran(mode, 2, whole, 40);
    ran(mode, 2, parts, 20);
    ran(mode, 2, parts, 30);
    const Result got = ran(mode, 2, parts, 40);
    EXPECT_EQ(got.step, want.step) << mode;
    EXPECT_EQ(got.weights, want.weights) << mode;
  }
}

TEST_F(cli_own_loop_checkpoint, a_program_goes_on_under_another_stage_on_1_2_and_4_ranks) {
  const Result want = ran("ddp", 1, folder_ / "whole", 50);
  const std::string run_dir = folder_ / "moved";
  ran("zero3", 2, run_dir, 10);
  ran("ddp", 4, run_dir, 20);
  ran("zero2", 1, run_dir, 30);
  ran("zero3", 4, run_dir, 40);
  EXPECT_NEAR(ran("zero2", 2, run_dir, 50).loss, want.loss, 1e-3);
}

TEST_F(cli_own_loop_checkpoint, what_is_saved_while_training_goes_on_resumes_with_the_same_bits) {
  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  const std::string want = said("async", 2, {whole, "40"});
  EXPECT_NE(want.find("saved " + whole + "/step-00000040"), std::string::npos) << want;
  said("async", 2, {parts, "20"});
  const std::string got = said("async", 2, {parts, "40"});
  EXPECT_NE(got.find("resumed at step 20\n"), std::string::npos) << got;
  EXPECT_EQ(got.substr(got.find("step 40, loss ")), want.substr(want.find("step 40, loss ")));
  EXPECT_LT(last_loss(got), 1.0) << "1.39 is what guessing gives";
  for (const std::string& run : {whole, parts}) {
    Command verify(trireme({"checkpoint", "verify", run}));
    EXPECT_EQ(verify.finish(), 0) << verify.out << verify.err;
  }
  EXPECT_EQ(read_file(whole + "/step-00000040/model.safetensors"),
            read_file(parts + "/step-00000040/model.safetensors"));
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
