// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/hooks/noise_scale.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/train/step_feature.h"

namespace trireme {

/// Implements monitor.gradient_noise_scale in the training step. It compares the ranks' gradients
/// as buckets are reduced, or on one rank those of the micro-batches (which takes one more copy of
/// the gradients). It starts afresh when a run is resumed.
class TRIREME_API GradientNoise : public StepFeature {
 public:
  ~GradientNoise() override;
  /// Wraps the hook that reduces buckets so that it also measures.
  virtual CommHook around(CommHook inner) = 0;
  void stepped(const FinishedStep& step) final {
    if (step.finite) end_step(step.grad_scale, step.norm, step.samples);
  }
  void metrics(int64_t step, const AddMetric& add) const final;
  /// Returns the batch size that the noise suggests, as a sentence.
  std::string summary(int64_t samples_per_step) const final;

  const NoiseScale& noise() const { return noise_; }

 protected:
  /// Called on every rank after the gradients are reduced. scale turns sums of gradients into their
  /// mean; norm is that of the mean.
  virtual void end_step(double scale, double norm, double samples) = 0;
  NoiseScale noise_;
};

/// Returns null unless enabled. Throws UsageError if a step has only one part.
TRIREME_API std::unique_ptr<GradientNoise> gradient_noise(const Config& config, const Group& group,
                                                          const Batches& batches);

}  // namespace trireme
