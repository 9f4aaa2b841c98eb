// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// Plan: dp = dp_replicate × dp_shard (design §4, "Batches"): `stage` says what is shared out,
// dp_shard over how many neighbouring ranks. Pure.
namespace trireme {

struct Sharding {
  int stage = 0;         // of ZeRO
  int dp_shard = 1;      // ranks over which states, gradients, parameters are shared out
  int dp_replicate = 1;  // such sets of ranks
};

struct ShardingInputs {
  struct Number {
    int64_t value = 0;  // 0: follows from the others
    std::string origin;
  };
  int stage = 0;
  Number shard, replicate;
};

/// At stage 0 nothing is shared out: {0, 1, dp}. Throws UsageError with every factor and its origin
/// where the product is not dp, and where stage 0 is asked to share out.
TRIREME_API Sharding solve_sharding(const ShardingInputs& given, int dp);

}  // namespace trireme
