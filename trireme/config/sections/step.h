// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// DeepSpeed's keys that stand outside every section: what a step is made of. What the batch
/// numbers come to is Config::resolve_batches()'s to say.
struct StepSection {
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> train_micro_batch_size_per_gpu;
  std::optional<int64_t> gradient_accumulation_steps;
  double gradient_clipping = 1;
  int64_t steps_per_print = 10;
  std::string gradient_allreduce_op = "mean";

  void fields(Fields& f) {
    f.field({.path = "train_batch_size",
             .min = 1,
             .max = f.kMany,
             .help = "samples of one optimizer step over all ranks = micro × accumulation × ranks; "
                     "derived when absent",
             .deepspeed = true},
            train_batch_size);
    f.field({.path = "train_micro_batch_size_per_gpu",
             .min = 1,
             .max = f.kMany,
             .help = "samples of one forward and backward on one rank; derived when absent",
             .deepspeed = true},
            train_micro_batch_size_per_gpu);
    f.field({.path = "gradient_accumulation_steps",
             .min = 1,
             .max = f.kMany,
             .help = "micro-batches of one optimizer step on one rank; derived when absent",
             .deepspeed = true},
            gradient_accumulation_steps);
    f.field({.path = "gradient_clipping",
             .min = 0,
             .help = "largest global norm of the gradients; 0: no clipping",
             .deepspeed = true},
            gradient_clipping);
    f.field({.path = "steps_per_print",
             .min = 1,
             .max = f.kMany,
             .help = "a progress line every so many optimizer steps",
             .deepspeed = true},
            steps_per_print);
    f.row({.path = "dataloader_drop_last",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "training.drop_last"});
    f.field({.path = "gradient_allreduce_op",
             .choices = "mean",
             .help = "how ranks' gradients are put together",
             .deepspeed = true,
             .why = "gradients are averaged over samples; scale the learning rate to get a sum",
             .refused_choices = "sum"},
            gradient_allreduce_op);
  }
};

}  // namespace trireme
