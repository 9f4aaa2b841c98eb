// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// DeepSpeed's top-level keys, which describe a step. Config::resolve_batches() derives the missing
/// batch sizes.
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
             .help = "samples per optimizer step over all ranks = micro × accumulation × ranks; "
                     "derived when absent",
             .deepspeed = true},
            train_batch_size);
    f.field({.path = "train_micro_batch_size_per_gpu",
             .min = 1,
             .max = f.kMany,
             .help = "samples per forward and backward on one rank; derived when absent",
             .deepspeed = true},
            train_micro_batch_size_per_gpu);
    f.field({.path = "gradient_accumulation_steps",
             .min = 1,
             .max = f.kMany,
             .help = "micro-batches per optimizer step on one rank; derived when absent",
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
             .help = "optimizer steps between two progress lines",
             .deepspeed = true},
            steps_per_print);
    f.row({.path = "dataloader_drop_last",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "training.drop_last"});
    f.field({.path = "gradient_allreduce_op",
             .choices = "mean",
             .help = "how the gradients of ranks are combined",
             .deepspeed = true,
             .why = "gradients are averaged over samples; scale the learning rate to get a sum",
             .refused_choices = "sum"},
            gradient_allreduce_op);
  }
};

}  // namespace trireme
