// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Balance between unequal ranks.
struct BalanceSection {
  std::string mode = "none";
  int64_t every = 10;
  double hysteresis = 0.05;
  int64_t min_samples = 1;
  double max_share = 1;
  std::vector<int64_t> max_samples;
  bool memory_backoff = true;

  void fields(Fields& f) {
    const char* on = "balance.mode=throughput";
    f.field({.path = "balance.mode",
             .choices = "none throughput",
             .help = "how a step's samples are distributed: none: equally; throughput: in "
                     "proportion to each rank's speed"},
            mode);
    f.field({.path = "balance.every",
             .min = 1,
             .max = 1e5,
             .when = on,
             .help = "steps that are measured before shares may change"},
            every);
    f.field({.path = "balance.hysteresis",
             .min = 0,
             .max = 0.9,
             .when = on,
             .help = "shares change only if the step becomes shorter by more than this fraction"},
            hysteresis);
    f.field({.path = "balance.min_samples",
             .min = 1,
             .max = f.kMany,
             .when = on,
             .help = "fewest samples of a rank in a step"},
            min_samples);
    f.field({.path = "balance.max_share",
             .min = 0,
             .max = 1,
             .when = on,
             .help = "largest fraction of a step's samples that one rank may get; 1: no limit"},
            max_share);
    f.field({.path = "balance.max_samples",
             .min = 1,
             .max = f.kMany,
             .when = on,
             .help = "memory limit: largest micro-batch in samples, one number for all ranks or "
                     "one per rank; []: train_micro_batch_size_per_gpu"},
            max_samples);
    f.field({.path = "balance.memory_backoff",
             .when = on,
             .help = "a rank that runs out of memory halves its micro-batch and continues; "
                     "otherwise the run ends"},
            memory_backoff);
  }
};

}  // namespace trireme
