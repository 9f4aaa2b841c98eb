// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "tests/train/small_runs.h"

namespace trireme::testing {

/// How long a rank needs, on a clock of its own: nanoseconds for a sample, and nothing for the
/// rest.
struct Speed {
  int64_t clock = 1, per_sample = 0;
};

class ScriptedSpeed : public Compute {
 public:
  ScriptedSpeed(std::unique_ptr<Compute> inner, std::shared_ptr<Speed> speed)
      : inner_(std::move(inner)), speed_(std::move(speed)) {}
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override {
    speed_->clock += speed_->per_sample * inputs.at(0).size(0);
    return inner_->forward_list(inputs);
  }

 private:
  std::unique_ptr<Compute> inner_;
  std::shared_ptr<Speed> speed_;
};

/// The run's from here on; the caller may change it between steps.
inline std::shared_ptr<Speed> script_speed(trireme::Run& run, int64_t per_sample) {
  auto speed = std::make_shared<Speed>(Speed{1, per_sample});
  *run.own_time = OwnTime([speed] { return speed->clock; });
  run.compute = std::make_unique<ScriptedSpeed>(std::move(run.compute), speed);
  return speed;
}

}  // namespace trireme::testing
