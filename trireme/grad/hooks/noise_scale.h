// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// The gradient noise scale: how many samples a step needs before its gradient is more signal than
// noise. Pure: norms in, numbers out.
//
// A gradient over B samples is the true one, G, with noise of covariance Σ/B. So the norms of the
// gradients of parts of a batch, against that of the whole, tell tr(Σ) and |G|² apart, and
// tr(Σ)/|G|² is the simple noise scale: a batch of that size needs twice the samples of tiny
// batches, and twice the steps of huge ones, to come as far.
// Source: McCandlish, Kaplan, Amodei et al., An Empirical Model of Large-Batch Training, 2018,
// appendix A.1; here for parts of unequal sizes.
namespace trireme {

/// One step's gradient, of a batch in parts (the ranks' or the micro-batches').
struct GradientParts {
  double parts = 0;  // Σ share · |g|² over parts: g its mean gradient, share its part of the batch
  double whole = 0;    // |g|² of the batch's mean gradient
  int64_t count = 0;   // parts that hold samples
  double samples = 0;  // of the batch
};

/// Unbiased, each from one step; either may be negative.
struct NoiseEstimate {
  double trace = 0;   // of Σ, of a sample
  double signal = 0;  // |G|²
};
/// UsageError with fewer than two parts, or without samples.
TRIREME_API NoiseEstimate estimate_noise(const GradientParts& step);

/// Averages of both over steps, exponential and corrected for their start; then their ratio, since
/// the ratio of one step's is no estimate of anything.
class TRIREME_API NoiseScale {
 public:
  /// decay: below 1; 0.99 looks back some hundred steps.
  explicit NoiseScale(double decay = 0.99);
  /// Leaves a step out whose norms are not finite.
  void add(const GradientParts& step);

  int64_t steps() const { return steps_; }  // that were added
  double trace() const;
  double signal() const;
  /// In samples. NaN before the first step and while the signal is lost in the noise.
  double samples() const;

 private:
  double decay_, weight_ = 0, trace_ = 0, signal_ = 0;
  int64_t steps_ = 0;
};

/// One line for people: what the estimate says about a batch of that many samples.
TRIREME_API std::string advice(const NoiseScale& noise, int64_t batch);

}  // namespace trireme
