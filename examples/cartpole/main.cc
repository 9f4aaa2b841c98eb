// SPDX-License-Identifier: Apache-2.0
// Reinforcement learning with actors: simulators of a pole on a cart, and one learner, which spawns
// them, answers their questions in batches and learns from what they see. A simulator whose process
// is killed loses its carts, and begins anew once a process of its name is back; the others go on
// meanwhile.
//   trireme run --role learner=1 --role simulator=4 cartpole [MEAN_RETURN]
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "learner.h"
#include "simulator.h"

namespace rpc = trireme::rpc;
using namespace std::chrono_literals;

constexpr int64_t kCarts = 8;  // of a simulator
constexpr int64_t kMostSteps = 500'000;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// It plays until the learner has learned enough, through every restart.
rpc::Future<void> keep_playing(rpc::ActorGroup<Simulator> simulators, int rank) {
  for (;;) {
    try {
      co_await simulators.call<play>(rank);
      co_return;
    } catch (const rpc::CallLost& lost) {  // the next call waits until it is back
      std::printf("%s\n", lost.what());
    }
  }
}

int learn(double wanted, int count) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const auto learner = std::make_shared<Learner>();
  auto me = rpc::init({.name = "learner0", .offers = {rpc::offer<act>(learner)}});
  std::vector<std::string> workers;
  for (int i = 0; i < count; ++i) workers.push_back("simulator" + std::to_string(i));
  const auto simulators =
      me.spawn<Simulator>(
            {.workers = workers, .supervision = {.on_death = rpc::OnDeath::same_worker}}, kCarts)
          .with(trireme::Duration::max());
  std::printf("%d simulators play\n", count);
  std::vector<rpc::Future<void>> playing;
  for (int rank = 0; rank < count; ++rank) playing.push_back(keep_playing(simulators, rank));

  const auto begin = std::chrono::steady_clock::now();
  const auto result = learner->learn(wanted, kMostSteps, static_cast<size_t>(count));
  for (auto& player : playing) player.get();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  std::printf("mean return of 100 episodes %.1f after %" PRId64 " steps, %.1f s and %" PRId64
              " restarts of simulators\n",
              result.mean_return, result.steps, time.count(), result.lives);
  me.shutdown();
  return result.mean_return >= wanted ? 0 : 1;
}

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string role = variable("TRIREME_ROLE");
  if (role == "learner")
    return learn(argc > 1 ? std::atof(argv[1]) : 400,
                 std::atoi(variable("WORLD_SIZE").c_str()) - 1);
  trireme::check<trireme::UsageError>(
      role == "simulator",
      "usage: trireme run --role learner=1 --role simulator=4 cartpole [MEAN_RETURN]");
  auto me = rpc::init({.offers = {rpc::offer_actor<Simulator, play>()}});  // "simulator0", …
  me.shutdown({.deadline = 1h});                                           // serves until the end
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
