// SPDX-License-Identifier: Apache-2.0
// examples/cartpole: its physics against a second implementation, and what it learns while one of
// its simulators is killed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "examples/cartpole/physics.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"

namespace trireme::testing::cartpole_test {
namespace {

constexpr int kSimulators = 4;

/// A process of the job, as a launcher starts it.
std::unique_ptr<Command> process(const std::string& job, int rank, const Arguments& more = {}) {
  const auto number = [](int i) { return std::to_string(i); };
  Arguments words{trireme::testing::build_path("/examples/cartpole")};
  words.insert(words.end(), more.begin(), more.end());
  return std::make_unique<Command>(
      words, CommandOptions{{{"RANK", number(rank)},
                             {"WORLD_SIZE", number(1 + kSimulators)},
                             {"LOCAL_RANK", number(rank)},
                             {"LOCAL_WORLD_SIZE", number(1 + kSimulators)},
                             {"TORCHELASTIC_RUN_ID", job},
                             {"MASTER_PORT", "29500"},
                             {"TRIREME_ROLE", rank == 0 ? "learner" : "simulator"},
                             {"TRIREME_ROLE_RANK", number(rank == 0 ? 0 : rank - 1)},
                             {"OMP_NUM_THREADS", "1"},
                             {"OPENBLAS_NUM_THREADS", "1"}},
                            {}});
}

double number_before(const std::string& words, const std::string& text) {
  const auto at = text.find(words);
  if (at == std::string::npos) return -1;
  const size_t begin = text.rfind(' ', at - 1);
  return std::atof(text.c_str() + begin);
}

double number_after(const std::string& words, const std::string& text) {
  const auto at = text.rfind(words);
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + words.size());
}

}  // namespace

TEST(cli_cartpole, moves_as_the_equations_of_motion_say) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 3; ++round) {
    CartPole cart(static_cast<unsigned>(round));
    std::string actions;
    Arguments words{"python3", trireme::testing::source_path("/tests/cli/cartpole_reference.py")};
    for (const double value : cart.state()) {
      std::ostringstream text;
      text.precision(17);
      text << value;
      words.push_back(text.str());
    }
    for (int i = 0; i < 60; ++i) actions += random() % 2 ? '1' : '0';
    words.push_back(actions);
    Command reference(words);
    ASSERT_EQ(reference.finish(), 0) << reference.err;
    std::istringstream lines(reference.out);
    int steps = 0;
    for (const char action : actions) {
      const auto end = cart.step(action == '1');
      CartPole::State want;
      for (double& value : want) ASSERT_TRUE(lines >> value) << steps;
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(cart.state()[i], want[i], 1e-12) << steps;
      ++steps;
      const bool over = std::abs(want[0]) > 2.4 || std::abs(want[2]) > 12 * M_PI / 180;
      ASSERT_EQ(end == CartPole::End::fell, over);
      if (over) break;
    }
    EXPECT_GT(steps, 5);
  }
}

TEST(cli_cartpole, an_episode_ends_after_500_steps) {
  CartPole cart(1);
  for (int i = 1; i <= 500; ++i) {
    cart.set_state({0, 0, 0, 0});
    EXPECT_EQ(cart.step(i % 2), i < 500 ? CartPole::End::no : CartPole::End::time);
  }
}

TEST(cli_cartpole, learns_to_balance_though_a_simulator_is_killed) {
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  const std::string job = "cartpole-" + std::to_string(::getpid());
  const auto learner = process(job, 0, {"400"});
  std::vector<std::unique_ptr<Command>> simulators;
  for (int rank = 1; rank <= kSimulators; ++rank) simulators.push_back(process(job, rank));
  const auto said = [&] {
    std::string all = learner->out + learner->err;
    for (const auto& simulator : simulators) all += simulator->out + simulator->err;
    return all;
  };
  ASSERT_TRUE(learner->wait_for("round 5:", std::chrono::seconds(120))) << said();
  simulators[1]->send(SIGKILL);
  EXPECT_EQ(simulators[1]->finish(), 128 + SIGKILL);
  // The others go on without it.
  const std::string round =
      "round " + std::to_string(static_cast<int>(number_after("round ", learner->out)) + 3) + ":";
  ASSERT_TRUE(learner->wait_for(round, std::chrono::seconds(120))) << said();
  simulators[1] = process(job, 2);
  ASSERT_EQ(learner->finish(std::chrono::seconds(200)), 0) << said();
  for (const auto& simulator : simulators) EXPECT_EQ(simulator->finish(), 0) << said();
  EXPECT_GE(number_after("mean return of 100 episodes ", learner->out), 400) << learner->out;
  EXPECT_EQ(number_before(" restarts of simulators", learner->out), 1) << learner->out;
  EXPECT_NE(
      learner->out.find("worker 'simulator1' does not answer 'Simulator.play', which had begun"),
      std::string::npos)
      << learner->out;
  RecordProperty("said", learner->out.substr(learner->out.rfind("mean return of")));
}

}  // namespace trireme::testing::cartpole_test
