// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/base/export.h"
#include "trireme/train/run.h"

namespace trireme {

struct Evaluation {
  double loss = 0;       // mean over samples or tokens
  double accuracy = -1;  // part of samples or tokens whose likeliest class is right
  int64_t weight = 0;
};

/// The held-out data, each sample once, dealt to the ranks: run.eval_batches micro-batches (0: all)
/// for text, all of it for images. Every rank calls it and gets the same.
TRIREME_API Evaluation evaluate(Run& run);
/// This rank's micro-batches of the same, under NoGradGuard. counts: false for one that another
/// rank has as well, which is run because forwards are collective.
void for_held_out(Run& run, const std::function<void(const MicroBatch& micro, bool counts)>& look);

}  // namespace trireme
