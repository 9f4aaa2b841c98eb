// SPDX-License-Identifier: Apache-2.0
#include "learner.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "physics.h"

namespace {

constexpr float kDiscount = 0.98f, kTrace = 0.9f;
constexpr int64_t kStepsOfARound = 2048, kEpochs = 10, kMinibatch = 256;
constexpr double kClip = 0.2;
// A simulator that was killed does not hold up the others for longer.
constexpr auto kPatience = std::chrono::milliseconds(20);

}  // namespace

trireme::rpc::Future<Actions> Learner::act(const Seen& seen) {
  const size_t carts = seen.ends.size();
  trireme::check<trireme::UsageError>(
      seen.rewards.size() == carts && seen.states.size() == 4 * carts,
      "act: {} carts, {} rewards and {} numbers of states do not fit", carts, seen.rewards.size(),
      seen.states.size());
  std::lock_guard lock(mutex_);
  if (done_) return trireme::rpc::ready(Actions());
  questions_.push_back({seen, {}});
  asked_.notify_one();
  return questions_.back().answer.future();
}

Learner::Result Learner::learn(double wanted, int64_t most_steps, size_t simulators) {
  while (mean_return() < wanted && steps_ < most_steps) {
    auto batch = next_batch(simulators);
    for (const Question& question : batch) take_rewards(question.seen);
    if (fresh_ >= kStepsOfARound) improve();
    answer(batch);
  }
  std::lock_guard lock(mutex_);
  done_ = true;
  for (Question& question : questions_) question.answer.set();
  questions_.clear();
  return {mean_return(), steps_, lives_};
}

std::vector<Learner::Question> Learner::next_batch(size_t simulators) {
  std::unique_lock lock(mutex_);
  asked_.wait(lock, [&] { return !questions_.empty(); });
  asked_.wait_for(lock, kPatience, [&] { return questions_.size() >= simulators; });
  return std::exchange(questions_, {});
}

void Learner::take_rewards(const Seen& seen) {
  for (size_t cart = 0; cart < seen.ends.size(); ++cart) {
    Path& path = paths_[{seen.simulator, cart}];
    if (path.life != seen.life) {  // what the last one was about to do nobody will ever know
      if (cart == 0 && path.life >= 0) ++lives_;
      path = Path();
      path.life = seen.life;
    }
    if (!path.open) continue;
    Step step = *std::exchange(path.open, {});
    const auto end = static_cast<CartPole::End>(seen.ends[cart]);
    step.reward = seen.rewards[cart];
    step.last = end != CartPole::End::no;
    path.episode += step.reward;
    if (step.last) {
      returns_.push_back(std::exchange(path.episode, 0));
      if (returns_.size() > 100) returns_.pop_front();
    }
    if (end == CartPole::End::time) step.reward += kDiscount * step.value;  // it would have gone on
    path.steps.push_back(step);
    ++steps_;
    ++fresh_;
  }
}

void Learner::answer(std::vector<Question>& batch) {
  torch::NoGradGuard no_grad;
  std::vector<float> states;
  for (const Question& question : batch)
    states.insert(states.end(), question.seen.states.begin(), question.seen.states.end());
  const auto count = static_cast<int64_t>(states.size() / 4);
  const auto [logits, values] = policy_(torch::from_blob(states.data(), {count, 4}));
  const torch::Tensor chosen = logits.exp().multinomial(1), likely = logits.gather(1, chosen);
  const auto* const actions = chosen.data_ptr<int64_t>();
  const auto *const logs = likely.data_ptr<float>(), *const worth = values.data_ptr<float>();
  size_t at = 0;
  for (Question& question : batch) {
    Actions answer;
    for (size_t cart = 0; cart < question.seen.ends.size(); ++cart, ++at) {
      Step step;
      step.action = actions[at];
      step.log_probability = logs[at];
      step.value = worth[at];
      std::copy_n(states.begin() + static_cast<int64_t>(4 * at), 4, step.state.begin());
      paths_[{question.seen.simulator, cart}].open = step;
      answer.push_back(static_cast<uint8_t>(actions[at]));
    }
    question.answer.set(std::move(answer));
  }
}

void Learner::improve() {
  std::vector<float> states, logs, advantages, targets;
  std::vector<int64_t> actions;
  for (auto& [who, path] : paths_) {
    if (path.steps.empty()) continue;
    // Advantages, from the last step to the first; the path goes on with a state whose value is
    // taken from the step before it, since its own is asked for later.
    float next = path.steps.back().value, trace = 0;
    std::vector<float> advantage(path.steps.size());
    for (size_t i = path.steps.size(); i-- > 0;) {
      const Step& step = path.steps[i];
      if (step.last) next = trace = 0;
      trace = step.reward + kDiscount * next - step.value + kDiscount * kTrace * trace;
      advantage[i] = trace;
      next = step.value;
    }
    for (size_t i = 0; i < path.steps.size(); ++i) {
      const Step& step = path.steps[i];
      states.insert(states.end(), step.state.begin(), step.state.end());
      actions.push_back(step.action);
      logs.push_back(step.log_probability);
      advantages.push_back(advantage[i]);
      targets.push_back(advantage[i] + step.value);
    }
    path.steps.clear();
  }
  const auto count = static_cast<int64_t>(actions.size());
  const auto all_states = torch::tensor(states).view({count, 4}), all_logs = torch::tensor(logs),
             all_targets = torch::tensor(targets), all_actions = torch::tensor(actions);
  auto all_advantages = torch::tensor(advantages);
  all_advantages = (all_advantages - all_advantages.mean()) / (all_advantages.std() + 1e-8);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch)
    for (const torch::Tensor& some : torch::randperm(count).split(kMinibatch)) {
      const auto [logits, values] = policy_(all_states.index_select(0, some));
      const auto log = logits.gather(1, all_actions.index_select(0, some).unsqueeze(1)).squeeze(1);
      const auto ratio = (log - all_logs.index_select(0, some)).exp();
      const auto advantage = all_advantages.index_select(0, some);
      const auto gain =
          torch::min(ratio * advantage, ratio.clamp(1 - kClip, 1 + kClip) * advantage).mean();
      const auto error = torch::mse_loss(values, all_targets.index_select(0, some));
      optimizer_.zero_grad();
      (0.5 * error - gain).backward();
      torch::nn::utils::clip_grad_norm_(policy_->parameters(), 0.5);
      optimizer_.step();
    }
  fresh_ = 0;
  std::printf("round %" PRId64 ": %" PRId64 " steps, mean return %.1f\n", ++rounds_, steps_,
              mean_return());
}

double Learner::mean_return() const {
  if (returns_.size() < 100) return 0;
  double sum = 0;
  for (const double value : returns_) sum += value;
  return sum / static_cast<double>(returns_.size());
}
