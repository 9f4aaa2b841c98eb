// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"

namespace trireme {

/// What a rank of a run holds, by LibTorch's allocator and the group's shared memory: never RSS,
/// which counts peers' pages and the libraries'. Bytes.
struct MeasuredMemory {
  int64_t weights = 0;      // parameters as they are trained, and copies that computing needs
  int64_t gradients = 0;    // as they lie after a step
  int64_t optimizer = 0;    // its tensors
  int64_t activations = 0;  // the most that a step holds beside what stays after it
  int64_t buffers = 0;      // what stays and is none of these: the group's, the data source's
  int64_t shared = 0;       // of all these, in the rank's own windows of shared memory
  int64_t resident = -1;    // proportional set size, less the process before the run; -1: unknown

  int64_t total() const { return weights + gradients + optimizer + activations + buffers; }
};

/// Builds the run of `config` and makes three steps of it: the last is measured, when buckets lie
/// as they stay and every state is there. Every rank calls it; each gets its own figures. Where
/// ranks are threads of one process, `resident` is of all. Throws what build_run and train_step do.
TRIREME_API MeasuredMemory measure_memory(const Config& config, Group group);

}  // namespace trireme
