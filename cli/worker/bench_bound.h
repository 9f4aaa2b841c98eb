// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme {

/// Seconds that `ranks` pinned threads of this process take for the loads and stores of an
/// all_reduce of `count` float32, each its chunk, with no synchronisation between them: what no
/// implementation on this machine can beat by much. Median of `calls`, buffers rewritten by their
/// owners before each.
double all_reduce_bound(int ranks, int64_t count, int calls);

}  // namespace trireme
