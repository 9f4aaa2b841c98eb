// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cli/bench_ops.h"

namespace trireme {

/// Whether bound_of() knows this operation.
bool has_bound(bench::Op op);

/// Seconds that `ranks` pinned threads of this process take for the loads and stores of one call on
/// float32 (all_reduce and reduce_scatter: sums), each its part, with no synchronisation between
/// them: what no implementation on this machine can beat by much. Copies are timed through the
/// caches and past them, and the faster counts. Median of `calls`, inputs rewritten by their owners
/// before each.
double bound_of(bench::Op op, int ranks, const bench::Shape& shape, int calls);

}  // namespace trireme
