// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What ranks share out: DeepSpeed's section zero_optimization. What the stage does not use is
/// absent.
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
             .help = "what ranks share out: 1: optimizer state; 2: and gradients; 3: and "
                     "parameters (true in place of the section is 1)",
             .deepspeed = true},
            stage);
    f.field({.path = "zero_optimization.share_weights",
             .when = flat,
             .help = "ranks of one host keep one copy of the weights in shared memory, in which "
                     "each updates its shard"},
            share_weights);
    f.field({.path = "zero_optimization.reduce_bucket_size",
             .min = 0,
             .max = 0x1p53,
             .when = flat,
             .idle = true,
             .help = "elements of a bucket of gradients; without it comm.bucket_mb (DeepSpeed: "
                     "5e8, one bucket of 2 GB)",
             .deepspeed = true},
            reduce_bucket_size);
    f.field({.path = "zero_optimization.stage3_prefetch_bucket_size",
             .min = 0,
             .max = 0x1p53,
             .when = units,
             .idle = true,
             .help = "elements that are gathered ahead of the unit that computes; 0: none",
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
             .help = "elements of units that may be whole at once",
             .deepspeed = true},
            max_live_parameters);
    f.field({.path = "zero_optimization.zero_hpz_partition_size",
             .min = 1,
             .max = f.kWide,
             .when = units,
             .idle = true,
             .help = "ranks of a host that share parameters out between them: "
                     "parallelism.dp_shard; 1: all ranks do",
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
