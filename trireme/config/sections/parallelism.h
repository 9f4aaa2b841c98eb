// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// How ranks divide the work; Config::resolve_sharding() derives the rest.
struct ParallelismSection {
  int64_t dp = 0;
  int64_t dp_shard = 0;
  int64_t dp_replicate = 0;
  int64_t tp = 1;
  bool sequence_parallel = false;

  void fields(Fields& f) {
    f.field({.path = "parallelism.dp",
             .min = 0,
             .max = f.kWide,
             .help = "data-parallel ranks; 0: all. A number that differs from the ranks started is "
                     "refused"},
            dp);
    f.field({.path = "parallelism.dp_shard",
             .min = 0,
             .max = f.kWide,
             .help = "neighbouring ranks over which ZeRO shards; 0: as dp_replicate allows"},
            dp_shard);
    f.field({.path = "parallelism.dp_replicate",
             .min = 0,
             .max = f.kWide,
             .help = "number of such sets of ranks: dp = dp_replicate × dp_shard; 0: derived"},
            dp_replicate);
    f.field({.path = "parallelism.tp",
             .min = 1,
             .max = f.kWide,
             .help = "neighbouring ranks that hold a part of each layer (tensor parallelism); the "
                     "rest of the ranks divide the batch"},
            tp);
    f.field({.path = "parallelism.sequence_parallel",
             .help = "with tp: norms, dropout and residuals are divided over positions too"},
            sequence_parallel);
    f.row({.path = "parallelism.tensor",
           .type = KeyType::integer,
           .min = 1,
           .alias_of = "parallelism.tp"});
    for (const char* axis : {"pp", "pipeline", "cp", "context", "ep", "expert"})
      f.row({.path = std::string("parallelism.") + axis,
             .type = KeyType::integer,
             .min = 1,
             .status = KeyStatus::refused,
             .why = "this version has data and tensor parallelism",
             .harmless = "1"});
  }
};

}  // namespace trireme
