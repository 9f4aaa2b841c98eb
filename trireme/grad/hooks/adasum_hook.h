// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/hooks/stateful_hook.h"

namespace trireme {

/// Adaptive summation instead of the mean (grad/hooks/adasum.h), parameter by parameter, along the
/// binary tree over ranks. The result for n ranks is between their gradients' mean and their sum,
/// so a learning rate for one rank also works for n. Under ReduceOp::sum the result is multiplied
/// by n, for callers that divide by the weight of all ranks: a rank's gradient then counts as the
/// mean over its samples, provided ranks have equally many.
///
/// A bucket is sent once (by all_to_all: a rank gets its chunk from each of the others) and
/// returned once; in between, the products of each level, 24 bytes per pair and parameter, are
/// summed over ranks. Memory: twice the bucket. float32 and float64; the same bits on every rank.
/// UsageError if the number of ranks is not a power of two. It keeps no state.
///
/// Source: horovod's op=Adasum.
TRIREME_API std::shared_ptr<StatefulHook> adasum_hook();

}  // namespace trireme
