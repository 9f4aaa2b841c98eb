// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Ranks that step separately and average their weights. See docs/compression.md.
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
    f.field(
        {.path = "averaging.type",
         .choices = "none local_sgd diloco hierarchical",
         .help = "how ranks that step on their own gradients become one model from time to time: "
                 "by the mean of their weights, or (diloco) by a step of an outer optimizer"},
        type);
    f.field({.path = "averaging.period",
             .min = 1,
             .max = f.kMany,
             .when = "averaging.type=local_sgd,diloco",
             .help = "steps between two averages"},
            period);
    f.field({.path = "averaging.start_step",
             .min = 0,
             .max = 1e15,
             .when = any_averaging,
             .help = "initial steps with gradients averaged over all ranks (post-local SGD)"},
            start_step);
    f.field({.path = "averaging.near",
             .min = 1,
             .max = f.kWide,
             .when = any_averaging,
             .help = "neighbouring ranks, such as those of one host, that still sum their "
                     "gradients in every step"},
            near);
    f.field(
        {.path = "averaging.group_sizes",
         .min = 1,
         .max = f.kMany,
         .when = levels,
         .help = "numbers of ranks that average together, from small groups to all ranks: [2, 8]"},
        group_sizes);
    f.field({.path = "averaging.periods",
             .min = 1,
             .max = f.kMany,
             .when = levels,
             .help = "steps between the averages of each entry of averaging.group_sizes: [4, 32]"},
            periods);
    f.field({.path = "averaging.outer_lr",
             .min = 1e-9,
             .max = 100,
             .when = diloco,
             .help = "learning rate of the outer SGD"},
            outer_lr);
    f.field(
        {.path = "averaging.outer_momentum",
         .min = 0,
         .max = 0.999999,
         .when = diloco,
         .help = "momentum of the outer SGD (the paper's 0.9 is for periods of hundreds of steps)"},
        outer_momentum);
    f.field({.path = "averaging.nesterov",
             .when = diloco,
             .help = "use Nesterov momentum in the outer SGD"},
            nesterov);
    f.field({.path = "averaging.compression",
             .choices = "none int8 topk sign",
             .when = diloco,
             .help = "how the averaged values are encoded for transport (see compression.type)"},
            compression);
  }
};

}  // namespace trireme
