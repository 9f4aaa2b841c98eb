// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

class DistributedDataParallel;

struct JoinOptions {
  /// true: once a rank runs out of batches while another still has some, all ranks get a UsageError
  /// that names it.
  bool throw_on_early_termination = false;
  /// Called on a rank without batches after each round of the others: pass optimizer.step() to keep
  /// its optimizer equal to theirs. Empty: the rank takes the others' weights at the end, and its
  /// optimizer's state remains that of its own last step.
  std::function<void()> shadow_step{};
};

/// Uneven inputs: ranks that have run out of batches take part in the others' reductions until all
/// ranks are done. `loop` is this rank's training loop, with any number of synchronising backwards
/// (but no other collective on the same group); every rank calls join().
///
/// Gradients are the mean over the ranks that had a batch or, with GradientMean::of_weights, over
/// the total weight: then a run over unequal parts equals the serial one. Buffers come from the
/// lowest rank that has batches. With several objects, one backward of each makes up a round of the
/// loop. When join() returns, every rank holds the weights and buffers of the last rank that
/// trained.
///
/// An exception from `loop` propagates. The cost is one round without gradients at the end.
///
/// Source: torch.distributed.algorithms.Join.
TRIREME_API void join(const std::vector<DistributedDataParallel*>& objects,
                      const std::function<void()>& loop, JoinOptions options = {});

}  // namespace trireme
