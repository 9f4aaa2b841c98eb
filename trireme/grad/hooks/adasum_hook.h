// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/hooks/stateful_hook.h"

namespace trireme {

/// Adaptive summation in the place of the mean (grad/hooks/adasum.h), parameter by parameter, along
/// the binary tree over ranks. The result of n ranks lies between their gradients' mean and their
/// sum, so a learning rate for one rank serves n. Under ReduceOp::sum it is given times n, for who
/// divides by the weight of all ranks: a rank's gradient then counts as the mean of its samples if
/// ranks have equally many.
///
/// A bucket travels once out (all_to_all: a rank gets a share of it from each) and once back; the
/// products of a level, 24 bytes a pair and parameter, are added over ranks between. Memory: twice
/// the bucket. float32 and float64; the same bits on every rank. UsageError for a number of ranks
/// that is no power of two. It remembers nothing.
///
/// Source: horovod's op=Adasum.
TRIREME_API std::shared_ptr<StatefulHook> adasum_hook();

}  // namespace trireme
