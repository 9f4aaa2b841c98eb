// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Which blocks of the model are recomputed in backward. DeepSpeed's activation_checkpointing
/// configures its checkpoint(), but not where a model calls it.
struct RecomputeSection {
  int64_t recompute_every = 0;
  double activation_memory_mb = 0;

  void fields(Fields& f) {
    f.field({.path = "training.recompute_every",
             .min = 0,
             .max = 10000,
             .when = "model.type=gpt",
             .help = "every k-th block drops its intermediate values after forward and recomputes "
                     "them in backward, with the same bits (1: all, 0: none)"},
            recompute_every);
    f.field({.path = "training.activation_memory_mb",
             .min = 0,
             .max = f.kMany,
             .when = "model.type=gpt",
             .help = "MiB for the activations of a micro-batch; as few blocks as possible are "
                     "recomputed to fit; 0: no limit"},
            activation_memory_mb);
  }
};

}  // namespace trireme
