// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// Batches sized by a budget of tokens: DeepSpeed's data_efficiency.data_sampling.dynamic_batching.
struct DataEfficiencySection {
  bool enabled = false;
  bool sampling_enabled = false;
  bool batching_enabled = false;
  std::optional<int64_t> max_tokens;
  std::string lr_scaling_method = "linear";
  int64_t min_batch_size = 1;
  int64_t max_batch_size = 0;
  std::string sequence_picking_order = "dataloader";

  void fields(Fields& f) {
    const char* on = "data_efficiency.data_sampling.dynamic_batching.enabled=true";
    f.field({.path = "data_efficiency.enabled",
             .help = "read the section data_efficiency",
             .deepspeed = true},
            enabled);
    f.field({.path = "data_efficiency.data_sampling.enabled",
             .when = "data_efficiency.enabled=true",
             .idle = true,
             .help = "read its subsection data_sampling",
             .deepspeed = true},
            sampling_enabled);
    f.field({.path = "data_efficiency.data_sampling.dynamic_batching.enabled",
             .when = "data_efficiency.data_sampling.enabled=true",
             .idle = true,
             .help = "size micro-batches by a budget of tokens; needs data.type documents",
             .deepspeed = true},
            batching_enabled);
    f.field({.path = "data_efficiency.data_sampling.dynamic_batching.max_tokens",
             .min = 1,
             .max = 1e12,
             .when = on,
             .idle = true,
             .help = "tokens per micro-batch: number of sequences × length of the longest",
             .deepspeed = true},
            max_tokens);
    f.field({.path = "data_efficiency.data_sampling.dynamic_batching.lr_scaling_method",
             .choices = "linear sqrt none",
             .when = on,
             .idle = true,
             .help = "how the learning rate scales with a step's samples ÷ train_batch_size",
             .deepspeed = true},
            lr_scaling_method);
    f.field({.path = "data_efficiency.data_sampling.dynamic_batching.min_batch_size",
             .min = 1,
             .max = f.kMany,
             .when = on,
             .idle = true,
             .help = "fewest sequences per micro-batch; smaller ones are left out",
             .deepspeed = true},
            min_batch_size);
    f.field({.path = "data_efficiency.data_sampling.dynamic_batching.max_batch_size",
             .min = 0,
             .max = f.kMany,
             .when = on,
             .idle = true,
             .help = "most sequences per micro-batch; 0: no limit",
             .deepspeed = true},
            max_batch_size);
    f.field({.path = "data_efficiency.data_sampling.dynamic_batching.sequence_picking_order",
             .choices = "dataloader random seqlen",
             .when = on,
             .idle = true,
             .help = "which sequences are batched together: in the order of the data, shuffled, or "
                     "of similar length",
             .deepspeed = true},
            sequence_picking_order);
  }
};

}  // namespace trireme
