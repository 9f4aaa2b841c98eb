// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <trireme/trireme.h>

#include <cstdint>
#include <vector>

#include "learner.h"
#include "physics.h"

// An actor that plays: some carts and poles, for which it asks the learner what to do.
class Simulator {
 public:
  explicit Simulator(const trireme::rpc::ActorPlace& place, int64_t carts)
      : me_(place), learner_(place.worker().peer("learner0")) {
    for (int64_t i = 0; i < carts; ++i)
      carts_.emplace_back(static_cast<unsigned>(1000 * (place.rank + 100 * place.restarts) + i));
  }

  /// Until the learner has learned enough. It holds no thread while it waits for the learner.
  trireme::rpc::Future<void> play() {
    Seen seen;
    seen.simulator = me_.rank;
    seen.life = me_.restarts;
    seen.rewards.resize(carts_.size());
    seen.ends.resize(carts_.size());
    for (;;) {
      seen.states.clear();
      for (const CartPole& cart : carts_)
        for (const double value : cart.state()) seen.states.push_back(static_cast<float>(value));
      const std::vector<uint8_t> actions = co_await learner_.async<act>(seen);
      if (actions.empty()) co_return;
      for (size_t i = 0; i < carts_.size(); ++i) {
        const CartPole::End end = carts_[i].step(actions[i] == 1);
        seen.rewards[i] = 1;
        seen.ends[i] = static_cast<uint8_t>(end);
        if (end != CartPole::End::no) carts_[i].reset();
      }
    }
  }

 private:
  const trireme::rpc::ActorPlace me_;
  const trireme::rpc::Peer learner_;
  std::vector<CartPole> carts_;
};
TRIREME_ACTOR(Simulator, const trireme::rpc::ActorPlace&, int64_t);
TRIREME_REMOTE(play, &Simulator::play);
