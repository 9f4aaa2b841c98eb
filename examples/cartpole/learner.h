// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>
#include <trireme/trireme.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

/// What a simulator says when it asks for the next actions: one number, or four, for each of its
/// carts.
struct Seen {
  int64_t simulator = 0, life = 0;  // a life is new when it was restarted
  std::vector<float> states;
  std::vector<float> rewards;  // of the last actions, and whether they ended an episode
  std::vector<uint8_t> ends;   // (CartPole::End), after which `states` has a new one
  TRIREME_FIELDS(simulator, life, states, rewards, ends)
};
using Actions = std::vector<uint8_t>;

struct PolicyImpl : torch::nn::Module {
  PolicyImpl() {
    for (auto* layers : {&actor, &critic}) {
      *layers = torch::nn::Sequential(torch::nn::Linear(4, 64), torch::nn::Tanh(),
                                      torch::nn::Linear(64, 64), torch::nn::Tanh());
      (*layers)->push_back(torch::nn::Linear(64, layers == &actor ? 2 : 1));
      register_module(layers == &actor ? "actor" : "critic", *layers);
    }
  }
  /// Logarithms of the probabilities of the two actions, and the values of the states.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& states) {
    return {torch::log_softmax(actor->forward(states), 1), critic->forward(states).squeeze(1)};
  }
  torch::nn::Sequential actor{nullptr}, critic{nullptr};
};
TORCH_MODULE(Policy);

// Proximal policy optimization (Schulman et al., 2017) on what several simulators see. They ask
// with act(), whose Future holds no thread; one thread answers all that have asked in one forward
// pass, and learns from what came of it.
class Learner {
 public:
  /// Called by simulators. No actions: it has learned enough.
  trireme::rpc::Future<Actions> act(const Seen& seen);

  /// Learns until the mean return of 100 episodes is `wanted`, or after `most_steps` steps. Batches
  /// are for `simulators` where all of them ask in time.
  struct Result {
    double mean_return = 0;
    int64_t steps = 0;
    int64_t lives = 0;  // of simulators, beyond their first ones
  };
  Result learn(double wanted, int64_t most_steps, size_t simulators);

 private:
  struct Question {
    Seen seen;
    trireme::rpc::Promise<Actions> answer;
  };
  struct Step {
    std::array<float, 4> state;
    int64_t action = 0;
    float log_probability = 0, value = 0, reward = 0;
    bool last = false;  // of its episode
  };
  /// What one cart did since the policy changed.
  struct Path {
    int64_t life = -1;
    std::vector<Step> steps;
    std::optional<Step> open;  // whose reward is not known yet
    double episode = 0;
  };

  std::vector<Question> next_batch(size_t simulators);
  void take_rewards(const Seen& seen);
  void answer(std::vector<Question>& batch);
  void improve();
  double mean_return() const;

  std::mutex mutex_;
  std::condition_variable asked_;
  std::vector<Question> questions_;
  bool done_ = false;

  Policy policy_;
  torch::optim::Adam optimizer_{policy_->parameters(), torch::optim::AdamOptions(1e-3)};
  std::map<std::pair<int64_t, size_t>, Path> paths_;
  std::deque<double> returns_;  // of the last 100 episodes
  int64_t steps_ = 0, fresh_ = 0, lives_ = 0, rounds_ = 0;
};
TRIREME_REMOTE(act, &Learner::act);
