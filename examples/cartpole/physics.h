// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <random>

// A pole on a cart, which is pushed left or right 50 times a second: CartPole-v1 of Gymnasium,
// after Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning
// control problems" (1983).
class CartPole {
 public:
  using State = std::array<double, 4>;  // position, speed, angle, angular speed
  enum class End { no, fell, time };

  explicit CartPole(unsigned seed) : random_(seed) { reset(); }

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }
  void reset() {
    std::uniform_real_distribution<double> small(-0.05, 0.05);
    for (double& value : state_) value = small(random_);
    steps_ = 0;
  }

  /// One step, which earns a reward of 1. What ends an episode: the pole is at more than 12 degrees
  /// or the cart at more than 2.4 from the middle, or 500 steps.
  End step(bool to_the_right) {
    auto& [x, speed, angle, turning] = state_;
    const double force = to_the_right ? kForce : -kForce;
    const double sine = std::sin(angle), cosine = std::cos(angle);
    const double push = (force + kPole * kHalfLength * turning * turning * sine) / (kCart + kPole);
    const double angular = (kGravity * sine - cosine * push) /
                           (kHalfLength * (4.0 / 3.0 - kPole * cosine * cosine / (kCart + kPole)));
    const double linear = push - kPole * kHalfLength * angular * cosine / (kCart + kPole);
    x += kStep * speed;
    speed += kStep * linear;
    angle += kStep * turning;
    turning += kStep * angular;
    if (std::abs(x) > 2.4 || std::abs(angle) > 12 * 2 * M_PI / 360) return End::fell;
    return ++steps_ >= 500 ? End::time : End::no;
  }

 private:
  static constexpr double kGravity = 9.8, kCart = 1.0, kPole = 0.1;      // m/s², kg
  static constexpr double kHalfLength = 0.5, kForce = 10, kStep = 0.02;  // m, N, s

  std::mt19937 random_;
  State state_{};
  int steps_ = 0;
};
