// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// How long training goes on, from which seed, and what it promises.
struct TrainingSection {
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t seed = 42;
  int64_t eval_every = 0;
  int64_t eval_batches = 20;
  bool drop_last = true;
  bool find_unused_parameters = false;
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
    f.field({.path = "training.seed", .min = 0, .help = "of initialisation, dropout and shuffling"},
            seed);
    f.row({.path = "training.log_every", .type = KeyType::integer, .alias_of = "steps_per_print"});
    f.field({.path = "training.eval_every",
             .min = 0,
             .max = f.kMany,
             .help = "validation loss every so many steps; 0: at the end only"},
            eval_every);
    f.field(
        {.path = "training.eval_batches",
         .min = 1,
         .max = f.kMany,
         .help = "micro-batches of a validation on text, over all ranks (of images it has all)"},
        eval_batches);
    f.field(
        {.path = "training.drop_last",
         .help =
             "leave out the last samples of an epoch that do not fill a step; false: they are a "
             "step of their own, whose mean is over what it has (DeepSpeed's default is false)"},
        drop_last);
    f.field({.path = "training.find_unused_parameters",
             .help = "a parameter need not get a gradient in every step (else that ends the run "
                     "with its name)"},
            find_unused_parameters);
    f.field({.path = "training.reproducible",
             .help = "the same bits whatever the number of ranks (powers of two)"},
            reproducible);
    f.field({.path = "training.leaves",
             .min = 0,
             .max = f.kMany,
             .when = "training.reproducible=true",
             .help = "micro-batches of a step over all ranks, a power of two; sets the "
                     "accumulation; 0: as the batch says"},
            leaves);
    f.field(
        {.path = "device",
         .choices = "auto cpu",
         .help =
             "where training runs: on the CPU, which is also what auto takes, even beside a GPU",
         .why = "this version trains on the CPU: take cpu, or auto; in a loop of your own, "
                "DistributedDataParallel takes CUDA tensors",
         .refused_choices = "cuda"},
        device);
  }
};

}  // namespace trireme
