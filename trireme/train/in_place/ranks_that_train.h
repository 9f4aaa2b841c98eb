// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/config/config.h"

namespace trireme {

/// How many of the ranks that are there train, of a run in process that has `all` when none is
/// missing; the others wait as spares. The most that the configuration allows:
/// - in reproducible runs a power of two, because their sums are those of any such number;
/// - with parallelism.dp_shard or dp_replicate a multiple of it;
/// - where shards are gathered in each micro-batch (ZeRO) and a step keeps its samples, a number
///   that divides them evenly.
/// 0: none; they wait for others. Pure.
TRIREME_API int ranks_that_train(const Config& config, int all, int there);

}  // namespace trireme
