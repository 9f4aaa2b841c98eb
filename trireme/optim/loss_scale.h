// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "trireme/base/check.h"

// The loss scale as a state machine: numbers in, numbers out. float16 gradients below 6e-8
// underflow, so the loss is multiplied by the largest scale at which gradients do not overflow,
// found by trial.
namespace trireme {

/// DeepSpeed's `fp16` keys and defaults. (PyTorch's GradScaler: window 2000, hysteresis 1.)
struct LossScaleOptions {
  double initial = 65536;  // 2^initial_scale_power
  bool dynamic = true;     // false (`loss_scale` not 0): the scale is fixed
  double growth = 2;       // factor after `window` good steps in a row
  double backoff = 0.5;    // factor after an overflow that hysteresis does not absorb
  int64_t window = 1000;   // loss_scale_window
  int64_t hysteresis = 2;  // overflows until the first back-off: hysteresis - 1 are absorbed
  /// Each good step (not only each growth) restores the hysteresis.
  bool consecutive_hysteresis = false;
  double min_scale = 1;  // min_loss_scale
};

struct LossScaleState {
  double scale = 65536;
  int64_t good_steps = 0;  // since the last overflow or growth
  int64_t hysteresis = 2;  // 1: the next overflow backs off
  int64_t skipped = 0;     // overflows in a row
};

enum class LossScaleMove : uint8_t {
  stayed,
  grew,
  absorbed,    // an overflow, absorbed by the hysteresis
  backed_off,  // an overflow: a smaller scale
  at_floor     // an overflow that cannot be answered: the run must stop; the state is unchanged
};

struct LossScaleStep {
  LossScaleState state;
  LossScaleMove move;
};

/// `loss_scale` 0: dynamic, starting at 2^initial_scale_power; otherwise a fixed scale.
inline LossScaleOptions deepspeed_loss_scale(
    double loss_scale = 0, int64_t initial_scale_power = 16, int64_t loss_scale_window = 1000,
    int64_t hysteresis = 2, bool consecutive_hysteresis = false, double min_loss_scale = 1) {
  LossScaleOptions o;
  o.dynamic = loss_scale == 0;
  o.initial = o.dynamic ? std::ldexp(1.0, static_cast<int>(initial_scale_power)) : loss_scale;
  o.window = loss_scale_window;
  o.hysteresis = hysteresis;
  o.consecutive_hysteresis = consecutive_hysteresis;
  o.min_scale = min_loss_scale;
  return o;
}

/// Throws UsageError that names the key.
inline void check_loss_scale(const LossScaleOptions& o) {
  auto positive = [](double v) {
    return v > 0 && v <= static_cast<double>(std::numeric_limits<float>::max());
  };
  check<UsageError>(positive(o.initial),
                    "loss scale: the initial scale (loss_scale, or 2^initial_scale_power) is {}: "
                    "give a positive float32 number",
                    o.initial);
  check<UsageError>(o.window >= 1, "loss scale: loss_scale_window is {}: give at least 1",
                    o.window);
  if (!o.dynamic) return;
  check<UsageError>(o.growth > 1 && std::isfinite(o.growth),
                    "loss scale: the growth factor is {}: give more than 1", o.growth);
  check<UsageError>(o.backoff > 0 && o.backoff < 1,
                    "loss scale: the back-off factor is {}: give a number between 0 and 1",
                    o.backoff);
  check<UsageError>(o.hysteresis >= 1, "loss scale: hysteresis is {}: give at least 1",
                    o.hysteresis);
  check<UsageError>(positive(o.min_scale),
                    "loss scale: min_loss_scale is {}: give a positive number", o.min_scale);
  check<UsageError>(o.initial >= o.min_scale,
                    "loss scale: the initial scale is {} (initial_scale_power), below "
                    "min_loss_scale {}: raise the former or lower the latter",
                    o.initial, o.min_scale);
}

inline LossScaleState first_loss_scale(const LossScaleOptions& o) {
  return {o.initial, 0, o.hysteresis, 0};
}

/// The state after a step. A fixed scale gives up after `window` overflows in a row; a dynamic one
/// at an overflow at min_scale with no hysteresis left.
inline LossScaleStep next_loss_scale(const LossScaleOptions& o, LossScaleState s, bool overflow) {
  const LossScaleState before = s;
  if (!overflow) {
    s.skipped = 0;
    if (!o.dynamic) return {s, LossScaleMove::stayed};
    if (o.consecutive_hysteresis) s.hysteresis = o.hysteresis;
    if (++s.good_steps < o.window) return {s, LossScaleMove::stayed};
    s.good_steps = 0;
    s.hysteresis = o.hysteresis;
    const double more = s.scale * o.growth;  // the loss is multiplied by it in float32
    if (more > static_cast<double>(std::numeric_limits<float>::max()))
      return {s, LossScaleMove::stayed};
    s.scale = more;
    return {s, LossScaleMove::grew};
  }
  ++s.skipped;
  if (!o.dynamic)
    return s.skipped < o.window ? LossScaleStep{s, LossScaleMove::absorbed}
                                : LossScaleStep{before, LossScaleMove::at_floor};
  s.good_steps = 0;
  if (s.hysteresis > 1) {
    --s.hysteresis;
    return {s, LossScaleMove::absorbed};
  }
  if (s.scale <= o.min_scale) return {before, LossScaleMove::at_floor};
  s.scale = std::fmax(s.scale * o.backoff, o.min_scale);
  return {s, LossScaleMove::backed_off};
}

}  // namespace trireme
