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

/// monitor.gradient_noise_scale in the training step: its parts are the ranks' gradients, measured
/// as buckets are reduced; on one rank the micro-batches' (one more copy of the gradients). Begins
/// anew when a run is resumed.
class TRIREME_API GradientNoise : public StepFeature {
 public:
  ~GradientNoise() override;
  /// The hook that reduces buckets, measuring.
  virtual CommHook around(CommHook inner) = 0;
  void stepped(const FinishedStep& step) final {
    if (step.finite) end_step(step.grad_scale, step.norm, step.samples);
  }
  void metrics(int64_t step, const AddMetric& add) const final;
  /// What batch size the noise advises.
  std::string summary(int64_t samples_per_step) const final;

  const NoiseScale& noise() const { return noise_; }

 protected:
  /// Every rank, after the gradients are reduced. scale: sums of gradients → mean; norm: of that.
  virtual void end_step(double scale, double norm, double samples) = 0;
  NoiseScale noise_;
};

/// Null unless the configuration asks. UsageError where a step has one part only.
TRIREME_API std::unique_ptr<GradientNoise> gradient_noise(const Config& config, const Group& group,
                                                          const Batches& batches);

}  // namespace trireme
