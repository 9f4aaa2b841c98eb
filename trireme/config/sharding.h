// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/config/degrees.h"

// Solves dp = dp_replicate × dp_shard (design §4, "Batches"): `stage` determines what is sharded,
// over dp_shard neighbouring ranks. Pure functions.
namespace trireme {

struct Sharding {
  int stage = 0;         // of ZeRO
  int dp_shard = 1;      // ranks over which states, gradients, parameters are sharded
  int dp_replicate = 1;  // such sets of ranks
};

struct ShardingInputs {
  struct Number {
    int64_t value = 0;  // 0: derived from the others
    std::string origin;
  };
  int stage = 0;
  Number shard, replicate;
};

/// At stage 0 nothing is sharded: returns {0, 1, dp}. Throws UsageError with every factor and its
/// origin, those of the world too, if the product is not dp, or if sharding is requested at stage
/// 0.
TRIREME_API Sharding solve_sharding(const ShardingInputs& given, const Degrees& degrees);

}  // namespace trireme
