// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients/gradient_noise.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/config/sections/monitor.h"
#include "trireme/config/sections/training.h"
#include "trireme/grad/hooks/noise_scale_hook.h"

namespace trireme {
namespace {

class OfRanks : public GradientNoise {
 public:
  explicit OfRanks(Group group) : group_(std::move(group)) {}
  CommHook around(CommHook inner) override { return parts_.emplace(std::move(inner)).hook(); }
  void micro_batch_done(const NamedTensors&, double weight) override { weight_ += weight; }
  void begin_again() override { weight_ = 0; }
  void end_step(double scale, double norm, double samples) override {
    Span span("exposed_comm", "gradient noise");
    noise_.add(parts_->take(group_, weight_, scale, norm, samples));
    weight_ = 0;
  }

 private:
  Group group_;
  std::optional<NoiseScaleHook> parts_;
  double weight_ = 0;
};

class OfMicroBatches : public GradientNoise {
 public:
  CommHook around(CommHook inner) override { return inner; }

  // The gradients hold the sum of all micro-batches so far; the last one is the difference.
  void micro_batch_done(const NamedTensors& parameters, double weight) override {
    Span span("compute", "gradient noise");
    at::NoGradGuard no_grad;
    at::Tensor squares = at::zeros({}, at::kDouble);
    before_.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& grad = parameters[i].second.grad();
      if (!grad.defined()) continue;
      at::Tensor& before = before_[i];
      if (!before.defined()) before = at::zeros_like(grad);
      // Reuses the memory: first the negative difference, then the new sum.
      before.sub_(grad);
      add_squares(before.reshape({-1}), squares);
      before.copy_(grad);
    }
    if (weight <= 0) return;
    sum_ += squares.item<double>() / weight;
    weight_ += weight;
    ++count_;
  }

  void begin_again() override {
    sum_ = weight_ = 0;
    count_ = 0;
    for (at::Tensor& t : before_)
      if (t.defined()) t.zero_();
  }

  void end_step(double scale, double norm, double samples) override {
    if (count_ >= 2) noise_.add({scale * scale * weight_ * sum_, norm * norm, count_, samples});
    begin_again();
  }

 private:
  std::vector<at::Tensor> before_;
  double sum_ = 0, weight_ = 0;
  int64_t count_ = 0;
};

}  // namespace

GradientNoise::~GradientNoise() = default;

void GradientNoise::metrics(int64_t, const AddMetric& add) const {
  add("gradient_noise_scale", noise_.samples());
}

std::string GradientNoise::summary(int64_t samples_per_step) const {
  return advice(noise_, samples_per_step);
}

std::unique_ptr<GradientNoise> gradient_noise(const Config& config, const Group& group,
                                              const Batches& batches) {
  const char* key = "monitor.gradient_noise_scale";
  if (!config.section<MonitorSection>().gradient_noise_scale) return nullptr;
  if (group.size() > 1) return std::make_unique<OfRanks>(group);
  check<UsageError>(
      batches.accumulation > 1,
      "{}: {} compares gradients of parts of a batch with the whole, and a step of this run has "
      "one part: 1 rank with 1 micro-batch. Start more ranks, raise gradient_accumulation_steps, "
      "or turn it off",
      config.origin(key), key);
  check<UsageError>(!config.section<TrainingSection>().reproducible,
                    "{}: {} on one rank cannot see the micro-batches' gradients of "
                    "training.reproducible, which go into a tree: start two ranks, or turn one off",
                    config.origin(key), key);
  return std::make_unique<OfMicroBatches>();
}

}  // namespace trireme
