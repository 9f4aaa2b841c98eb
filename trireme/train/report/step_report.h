// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme {

struct StepReport {
  double loss = 0;       // mean over the global batch
  double grad_norm = 0;  // of the mean gradient, before clipping
  double lr = 0;
  int64_t weight = 0;   // samples or tokens of the global batch
  int64_t samples = 0;  // of the global batch
  int stop = 0;  // nonzero if a rank was asked to stop: the ranks' largest value, the same on all
  double loss_scale = 0;  // of this step; 0 without loss scaling
  bool skipped = false;   // an overflow: weights and optimizer state are unchanged
};

}  // namespace trireme
