// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// How long training runs, with which seed, and whether it is reproducible.
struct TrainingSection {
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t seed = 42;
  int64_t eval_every = 0;
  bool eval_epochs = false;
  int64_t eval_batches = 20;
  bool drop_last = true;
  bool find_unused_parameters = false;
  int64_t check_replicas = 0;
  bool reproducible = false;
  int64_t leaves = 0;
  std::string device = "auto";

  void fields(Fields& f) {
    f.field({.path = "training.steps",
             .min = 0,
             .max = 1e12,
             .help = "optimizer steps; 0: until training.epochs (1000 when neither is given)"},
            steps);
    f.field(
        {.path = "training.epochs",
         .min = 0,
         .max = f.kMany,
         .help = "passes over the data; 0: until training.steps; with both, whichever ends first"},
        epochs);
    f.field({.path = "training.seed",
             .min = 0,
             .help = "seed of initialisation, dropout and shuffling"},
            seed);
    f.row({.path = "training.log_every", .type = KeyType::integer, .alias_of = "steps_per_print"});
    f.field({.path = "training.eval_every",
             .min = 0,
             .max = f.kMany,
             .help = "steps between two validations; 0: only at the end"},
            eval_every);
    f.field({.path = "training.eval_epochs", .help = "validate after each epoch, too"},
            eval_epochs);
    f.field({.path = "training.eval_batches",
             .min = 1,
             .max = f.kMany,
             .help = "micro-batches of a validation on text, over all ranks (images use all "
                     "held-out data)"},
            eval_batches);
    f.field(
        {.path = "training.drop_last",
         .help =
             "leave out the last samples of an epoch if they do not fill a step; false: they form "
             "a smaller step, whose mean is over its samples (DeepSpeed's default is false)"},
        drop_last);
    f.field({.path = "training.find_unused_parameters",
             .help = "allow parameters that get no gradient in a step; otherwise the run ends with "
                     "their names"},
            find_unused_parameters);
    f.field(
        {.path = "training.check_replicas",
         .min = 0,
         .max = f.kMany,
         .help = "steps between two comparisons of the parameters and buffers that ranks should "
                 "hold alike; a difference ends the run and names it and the ranks; 0: never"},
        check_replicas);
    f.field({.path = "training.reproducible",
             .help = "give the same bits on any number of ranks (powers of two)"},
            reproducible);
    f.field({.path = "training.leaves",
             .min = 0,
             .max = f.kMany,
             .when = "training.reproducible=true",
             .help = "micro-batches per step over all ranks, a power of two; sets the "
                     "accumulation; 0: as the batch size says"},
            leaves);
    f.field(
        {.path = "device",
         .help = "where training runs: cpu; cuda: the GPU with the rank's number on its host "
                 "(LOCAL_RANK); cuda:N: that one; privateuseone, privateuseone:N: a device that a "
                 "library added to LibTorch; auto: as cuda if LibTorch sees a GPU, else cpu. "
                 "initialize() with auto leaves the module where it is"},
        device);
  }
};

}  // namespace trireme
