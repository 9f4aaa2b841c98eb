// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/noise_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/check.h"

namespace trireme {

// E[Σ share |g|²] = |G|² + count · tr Σ / samples, whatever the shares; E|whole|² = |G|² +
// tr Σ / samples.
NoiseEstimate estimate_noise(const GradientParts& step) {
  check<UsageError>(
      step.count >= 2 && step.samples > 0,
      "gradient noise: {} parts of {} samples; at least two parts with samples are needed",
      step.count, step.samples);
  const double noise = (step.parts - step.whole) / static_cast<double>(step.count - 1);
  return {noise * step.samples, step.whole - noise};
}

NoiseScale::NoiseScale(double decay) : decay_(decay) {
  check<UsageError>(decay >= 0 && decay < 1, "gradient noise: a decay of {} is outside [0, 1)",
                    decay);
}

void NoiseScale::add(const GradientParts& step) {
  if (!std::isfinite(step.parts) || !std::isfinite(step.whole)) return;
  const NoiseEstimate e = estimate_noise(step);
  weight_ = decay_ * weight_ + (1 - decay_);
  trace_ = decay_ * trace_ + (1 - decay_) * e.trace;
  signal_ = decay_ * signal_ + (1 - decay_) * e.signal;
  ++steps_;
}

double NoiseScale::trace() const { return trace_ / weight_; }
double NoiseScale::signal() const { return signal_ / weight_; }

double NoiseScale::samples() const {
  if (steps_ == 0 || signal_ <= 0) return std::numeric_limits<double>::quiet_NaN();
  return std::max(0.0, trace_ / signal_);
}

std::string advice(const NoiseScale& noise, int64_t batch) {
  if (noise.steps() == 0) return "gradient noise scale: no step was measured";
  const double samples = noise.samples();
  if (!std::isfinite(samples))
    return fmt::format(
        "gradient noise scale: above what {} steps of {} samples can tell, the gradient is mostly "
        "noise: a larger batch saves steps",
        noise.steps(), batch);
  const double ratio = samples / static_cast<double>(batch);
  const char* so = ratio > 2     ? "larger batches still save steps almost in proportion"
                   : ratio < 0.5 ? "a smaller batch learns as much from fewer samples"
                                 : "steps and samples are in balance";
  return fmt::format(
      "gradient noise scale: after {} steps, a batch of about {:.0f} samples balances steps and "
      "samples; this run has {}: {}",
      noise.steps(), std::max(1.0, samples), batch, so);
}

}  // namespace trireme
