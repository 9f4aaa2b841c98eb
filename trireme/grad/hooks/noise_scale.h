// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// The gradient noise scale: how many samples a step needs before its gradient is more signal than
// noise. Pure: norms in, numbers out.
//
// A gradient over B samples is the true gradient G plus noise of covariance Σ/B. So comparing the
// norms of the gradients of parts of a batch with the norm for the whole batch yields both tr(Σ)
// and |G|². Their ratio tr(Σ)/|G|² is the simple noise scale: a batch of that size needs twice the
// samples of tiny batches, and twice the steps of huge ones, to make the same progress. Source:
// McCandlish, Kaplan, Amodei et al., An Empirical Model of Large-Batch Training, 2018, appendix
// A.1; here for parts of unequal sizes.
namespace trireme {

/// The norms of one step's gradient, for a batch divided into parts (by rank or by micro-batch).
struct GradientParts {
  double parts = 0;  // Σ share · |g|² over parts: g its mean gradient, share its part of the batch
  double whole = 0;    // |g|² of the batch's mean gradient
  int64_t count = 0;   // parts that hold samples
  double samples = 0;  // of the batch
};

/// Unbiased estimates from one step; either may be negative.
struct NoiseEstimate {
  double trace = 0;   // trace of Σ, for one sample
  double signal = 0;  // |G|²
};
/// UsageError with fewer than two parts, or without samples.
TRIREME_API NoiseEstimate estimate_noise(const GradientParts& step);

/// Averages both over steps, exponentially and with bias correction, and then takes their ratio;
/// the ratio of a single step's estimates would be meaningless.
class TRIREME_API NoiseScale {
 public:
  /// decay: below 1; 0.99 averages over roughly the last hundred steps.
  explicit NoiseScale(double decay = 0.99);
  /// Skips a step whose norms are not finite.
  void add(const GradientParts& step);

  int64_t steps() const { return steps_; }  // steps that were added
  double trace() const;
  double signal() const;
  /// The noise scale in samples. NaN before the first step and while the signal is lost in the
  /// noise.
  double samples() const;

 private:
  double decay_, weight_ = 0, trace_ = 0, signal_ = 0;
  int64_t steps_ = 0;
};

/// One line of text: what the estimate says about a batch of that many samples.
TRIREME_API std::string advice(const NoiseScale& noise, int64_t batch);

}  // namespace trireme
