// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What is sharded over ranks: DeepSpeed's section zero_optimization. Values that the stage does
/// not use are absent.
struct ZeroSection {
  int64_t stage = 0;
  bool share_weights = false;
  std::optional<int64_t> reduce_bucket_size;
  std::optional<int64_t> prefetch_bucket_size = 50'000'000;
  std::optional<int64_t> param_persistence_threshold = 100'000;
  std::optional<int64_t> max_live_parameters = 1'000'000'000;
  int64_t hpz_partition_size = 1;
  int64_t mics_shard_size = -1;

  void fields(Fields& f) {
    const char* flat = "zero_optimization.stage=1,2";
    const char* units = "zero_optimization.stage=3";
    f.field({.path = "zero_optimization.stage",
             .min = 0,
             .max = 3,
             .help = "what is sharded over ranks; 1: optimizer state; 2: also gradients; 3: also "
                     "parameters (true in place of the section means 1)",
             .deepspeed = true},
            stage);
    f.field({.path = "zero_optimization.share_weights",
             .when = flat,
             .help = "the ranks of a host keep one copy of the weights in shared memory, in which "
                     "each updates its shard"},
            share_weights);
    f.field({.path = "zero_optimization.reduce_bucket_size",
             .min = 0,
             .max = 0x1p53,
             .when = flat,
             .idle = true,
             .help = "elements per gradient bucket; by default comm.bucket_mb decides (DeepSpeed: "
                     "5e8, one bucket of 2 GB)",
             .deepspeed = true},
            reduce_bucket_size);
    f.field({.path = "zero_optimization.stage3_prefetch_bucket_size",
             .min = 0,
             .max = 0x1p53,
             .when = units,
             .idle = true,
             .help = "elements gathered ahead of the unit that is computing; 0: none",
             .deepspeed = true},
            prefetch_bucket_size);
    f.field({.path = "zero_optimization.stage3_param_persistence_threshold",
             .min = 0,
             .max = 0x1p53,
             .when = units,
             .idle = true,
             .help = "parameters with fewer elements stay whole on every rank",
             .deepspeed = true},
            param_persistence_threshold);
    f.field({.path = "zero_optimization.stage3_max_live_parameters",
             .min = 0,
             .max = 0x1p53,
             .when = units,
             .idle = true,
             .help = "elements of units that may be whole at the same time",
             .deepspeed = true},
            max_live_parameters);
    f.field({.path = "zero_optimization.zero_hpz_partition_size",
             .min = 1,
             .max = f.kWide,
             .when = units,
             .idle = true,
             .help = "ranks of a host that shard parameters among themselves, as "
                     "parallelism.dp_shard; 1: all ranks",
             .deepspeed = true},
            hpz_partition_size);
    f.field({.path = "zero_optimization.mics_shard_size",
             .min = -1,
             .max = f.kWide,
             .when = units,
             .idle = true,
             .help = "the same as zero_hpz_partition_size; -1: all ranks",
             .deepspeed = true},
            mics_shard_size);
    f.row({.path = "zero_optimization.prefetch_bucket_size",
           .type = KeyType::integer,
           .deepspeed = true,
           .alias_of = "zero_optimization.stage3_prefetch_bucket_size"});
    f.row({.path = "zero_optimization.param_persistence_threshold",
           .type = KeyType::integer,
           .deepspeed = true,
           .alias_of = "zero_optimization.stage3_param_persistence_threshold"});
    f.row({.path = "zero_optimization.max_live_parameters",
           .type = KeyType::integer,
           .deepspeed = true,
           .alias_of = "zero_optimization.stage3_max_live_parameters"});
    f.row({.path = "zero_optimization.ignore_unused_parameters",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "training.find_unused_parameters"});
  }
};

}  // namespace trireme
