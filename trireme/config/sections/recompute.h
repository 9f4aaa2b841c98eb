// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Which blocks of the model are computed again in backward. DeepSpeed's activation_checkpointing
/// says how its checkpoint() works, not where a model calls it.
struct RecomputeSection {
  int64_t recompute_every = 0;
  double activation_memory_mb = 0;

  void fields(Fields& f) {
    f.field({.path = "training.recompute_every",
             .min = 0,
             .max = 10000,
             .when = "model.type=gpt",
             .help = "every k-th block drops its inner values after forward and computes them "
                     "again in backward (1: all, 0: none); the same bits"},
            recompute_every);
    f.field({.path = "training.activation_memory_mb",
             .min = 0,
             .max = f.kMany,
             .when = "model.type=gpt",
             .help = "MiB for the activations of a micro-batch: the fewest blocks are recomputed "
                     "with which they fit; 0: no limit"},
            activation_memory_mb);
  }
};

}  // namespace trireme
