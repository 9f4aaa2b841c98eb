// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"

namespace trireme {

/// Memory of one rank in bytes, as reported by LibTorch's allocator and the group's shared memory;
/// of a rank that computes on a device, what lies there.
/// RSS is not used: it counts pages of peers and of libraries.
struct MeasuredMemory {
  int64_t weights = 0;      // parameters as trained, and copies needed to compute
  int64_t gradients = 0;    // as held after a step
  int64_t optimizer = 0;    // its tensors
  int64_t activations = 0;  // peak during a step, beyond what remains after it
  int64_t buffers = 0;      // the rest: the group's, the data source's
  int64_t snapshots =
      0;  // of checkpoint.async, snapshot_every: made once, after everything else is measured
  int64_t shared = 0;          // the part of the five before them in the rank's own shared memory
  int64_t host_optimizer = 0;  // the optimizer's tensors in host memory, of a rank on a device
  int64_t device_total = 0;    // of the device; 0: the CPU, or not known
  int64_t resident = -1;       // proportional set size, minus that before the run; -1: unknown

  int64_t total() const {
    return weights + gradients + optimizer + activations + buffers + snapshots;
  }
};

/// Builds the run of `config` and takes three steps, of which it measures the last, when the bucket
/// layout is final and all state exists. Every rank must call it; each gets its own figures. If
/// ranks are threads of one process, `resident` covers all of them. Throws what build_run and
/// train_step throw.
TRIREME_API MeasuredMemory measure_memory(const Config& config, Group group);

}  // namespace trireme
