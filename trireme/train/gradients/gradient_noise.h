// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/hooks/noise_scale.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// monitor.gradient_noise_scale in the training step: its parts are the ranks' gradients, measured
/// as buckets are reduced; on one rank the micro-batches' (one more copy of the gradients). Begins
/// anew when a run is resumed.
class TRIREME_API GradientNoise {
 public:
  virtual ~GradientNoise();
  /// The hook that reduces buckets, measuring.
  virtual CommHook around(CommHook inner) = 0;
  /// The gradients of a micro-batch have been added; weight: of its loss.
  virtual void micro_batch_done(const NamedTensors& parameters, double weight) = 0;
  /// The step's micro-batches come again from the first.
  virtual void begin_again() = 0;
  /// Every rank, after the gradients are reduced. scale: sums of gradients → mean; norm: of that.
  virtual void end_step(double scale, double norm, double samples) = 0;

  const NoiseScale& noise() const { return noise_; }

 protected:
  NoiseScale noise_;
};

/// Null unless the configuration asks. UsageError where a step has one part only.
TRIREME_API std::unique_ptr<GradientNoise> gradient_noise(const Config& config, const Group& group,
                                                          const Batches& batches);

}  // namespace trireme
