// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

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

}  // namespace trireme
