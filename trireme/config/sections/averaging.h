// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Ranks that take steps of their own and average weights. docs/compression.md.
struct AveragingSection {
  std::string type = "none";
  int64_t period = 16;
  int64_t start_step = 0;
  int64_t near = 1;
  std::vector<int64_t> group_sizes;
  std::vector<int64_t> periods;
  double outer_lr = 0.7;
  double outer_momentum = 0.6;
  bool nesterov = true;
  std::string compression = "none";

  void fields(Fields& f) {
    const char* any_averaging = "averaging.type=local_sgd,diloco,hierarchical";
    const char* diloco = "averaging.type=diloco";
    const char* levels = "averaging.type=hierarchical";
    f.field({.path = "averaging.type",
             .choices = "none local_sgd diloco hierarchical",
             .help = "ranks step on their own gradients and become one model now and then: by the "
                     "mean of their weights, or (diloco) by an outer optimizer's step"},
            type);
    f.field({.path = "averaging.period",
             .min = 1,
             .max = f.kMany,
             .when = "averaging.type=local_sgd,diloco",
             .help = "steps apart between two averages"},
            period);
    f.field({.path = "averaging.start_step",
             .min = 0,
             .max = 1e15,
             .when = any_averaging,
             .help = "steps that all take as one, to begin with (post-local SGD)"},
            start_step);
    f.field({.path = "averaging.near",
             .min = 1,
             .max = f.kWide,
             .when = any_averaging,
             .help = "neighbouring ranks that add their gradients in every step all the same, such "
                     "as those of a host"},
            near);
    f.field({.path = "averaging.group_sizes",
             .min = 1,
             .max = f.kMany,
             .when = levels,
             .help = "ranks that average together, from small groups to all: [2, 8]"},
            group_sizes);
    f.field({.path = "averaging.periods",
             .min = 1,
             .max = f.kMany,
             .when = levels,
             .help = "… and after how many steps: [4, 32]"},
            periods);
    f.field({.path = "averaging.outer_lr",
             .min = 1e-9,
             .max = 100,
             .when = diloco,
             .help = "learning rate of the outer SGD"},
            outer_lr);
    f.field({.path = "averaging.outer_momentum",
             .min = 0,
             .max = 0.999999,
             .when = diloco,
             .help = "its momentum (the paper's 0.9 is for hundreds of steps a period)"},
            outer_momentum);
    f.field({.path = "averaging.nesterov", .when = diloco, .help = "in Nesterov's form"}, nesterov);
    f.field({.path = "averaging.compression",
             .choices = "none int8 topk sign",
             .when = diloco,
             .help = "what is averaged travels so (compression.type says how)"},
            compression);
  }
};

}  // namespace trireme
