// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// How ranks divide the work; what follows from it: Config::resolve_sharding().
struct ParallelismSection {
  int64_t dp = 0;
  int64_t dp_shard = 0;
  int64_t dp_replicate = 0;

  void fields(Fields& f) {
    f.field(
        {.path = "parallelism.dp",
         .min = 0,
         .max = f.kWide,
         .help = "data-parallel ranks; 0: all. Another number than the ranks started is refused"},
        dp);
    f.field(
        {.path = "parallelism.dp_shard",
         .min = 0,
         .max = f.kWide,
         .help = "neighbouring ranks over which ZeRO shares out; 0: all that dp_replicate leaves"},
        dp_shard);
    f.field({.path = "parallelism.dp_replicate",
             .min = 0,
             .max = f.kWide,
             .help = "how many such sets of ranks there are: dp = dp_replicate × dp_shard; 0: what "
                     "follows"},
            dp_replicate);
    for (const char* axis : {"tensor", "pipeline", "context", "expert"})
      f.row({.path = std::string("parallelism.") + axis,
             .type = KeyType::integer,
             .min = 1,
             .status = KeyStatus::refused,
             .why = "arrives with its kind of parallelism; this version has data parallelism",
             .harmless = "1"});
  }
};

}  // namespace trireme
