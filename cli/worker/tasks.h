// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tasks share: their words, the process they are alone in, comm.*.
#include "trireme/train/rank/group_options.h"
#include "trireme/train/rank/process.h"
#include "trireme/train/rank/task_options.h"

namespace trireme {

/// Each is one rank (or the only process) of its verb; the words come from the front half, which
/// checked them.
int generate_task(const Words& words);
int bench_task(const Words& words);
/// One JSON object on stdout: LibTorch, its BLAS, the backends of this build. For `trireme doctor`.
int about_task(const Words& words);
/// What ranks would find for a configuration's device (front/device_check.h), as JSON on stdout.
int device_task(const Words& words);
/// Steps of a run, and what the rank that held the most held, as JSON into a file: for `trireme
/// summary --measure`.
int measure_task(const Words& words);
/// {"float32": GFLOP/s, "bfloat16": …} of a matrix product on one thread, for the same.
int half_rate_task(const Words& words);

}  // namespace trireme
