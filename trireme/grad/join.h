// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

class DistributedDataParallel;

struct JoinOptions {
  /// true: as soon as a rank has no more batches while another has, a UsageError on all ranks that
  /// names it.
  bool throw_on_early_termination = false;
  /// What a rank without batches does after each round of the others: optimizer.step(), so that its
  /// optimizer stays equal too. Empty: it takes the others' weights at the end, and its optimizer's
  /// state is that of its own last step.
  std::function<void()> shadow_step{};
};

/// Uneven inputs: ranks that have run out of batches take part in the others' reductions until all
/// have. `loop` is the training loop of this rank, with any number of synchronising backwards (but
/// no other collective of the same group); every rank calls join().
///
/// Gradients are the mean over the ranks that had a batch, or by GradientMean::of_weights over what
/// they weighed: then a run over unequal parts equals the serial one. Buffers come from the lowest
/// rank that has batches. With several objects, one backward of each makes a round of the loop.
/// When it returns every rank holds the weights and buffers of the last rank that trained.
///
/// An exception out of `loop` goes through. Costs one round without gradients at the end.
///
/// Source: torch.distributed.algorithms.Join.
TRIREME_API void join(const std::vector<DistributedDataParallel*>& objects,
                      const std::function<void()>& loop, JoinOptions options = {});

}  // namespace trireme
