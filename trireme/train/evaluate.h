// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/base/export.h"
#include "trireme/train/run.h"

namespace trireme {

struct Evaluation {
  double loss = 0;       // mean over samples or tokens
  double accuracy = -1;  // fraction of samples or tokens classified correctly
  int64_t weight = 0;
};

/// Evaluates the held-out data, each sample once, distributed over the ranks: for text
/// run.eval_batches micro-batches (0: all), for images all of it. Every rank must call it and gets
/// the same result.
TRIREME_API Evaluation evaluate(Run& run);
/// Calls `look` for this rank's micro-batches of the held-out data, under NoGradGuard. `counts` is
/// false for one that another rank also has; it is run because forwards are collective.
void for_held_out(Run& run, const std::function<void(const MicroBatch& micro, bool counts)>& look);

}  // namespace trireme
