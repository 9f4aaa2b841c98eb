// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/permutation.h"
#include "trireme/data/position.h"

// Which samples each rank reads in each step. Pure: integers in, integers out.
namespace trireme {

/// One micro-batch of fixed shape: the unit of reproducible mode (docs/design.md, section 3).
struct Leaf {
  int64_t index = 0;         // g, in the step
  int64_t first = 0;         // number of its first sample in the run: (step * M + g) * b
  std::vector<int64_t> ids;  // b sample ids of the source, in order
};

/// How a step's leaves are assigned to ranks.
enum class Deal {
  blocks,   // rank r has leaves [r M/world, (r+1) M/world)
  strided,  // rank r has leaves r, r + world, …: ranks reduce neighbouring leaves together
  uneven,   // as blocks, where the world does not divide M: some ranks have one leaf more
};

struct GlobalBatchOptions {
  int64_t dataset_size = 0;
  int64_t leaf_size = 1;  // b: samples of one micro-batch
  int64_t leaves = 1;     // M: micro-batches of one step over all ranks (ranks × accumulation)
  uint64_t seed = 42;
  bool shuffle = true;
  bool drop_last = true;   // false: the rest of an epoch is a step of its own, with fewer samples
  DataOrigin origin = {};  // steps before it cannot be asked for
};

/// Leaf g of step s holds samples [(s*M + g)*b, +b) of the epoch's permutation, whatever the world
/// size is, so every world size sees the same samples, in the same order, in each step. Epochs
/// follow one another without a gap. A run that continues with steps of another size counts from
/// its origin (data/position.h), so that an epoch's samples are still read once. A tail of an epoch
/// that is shorter than a step is dropped (different samples in each epoch, because the order
/// differs) or, with drop_last false, becomes a step whose leaves divide its r samples as evenly as
/// possible: leaf g holds [g*r/M, (g+1)*r/M) of them, which may be none where r < M. PyTorch's
/// sampler assigns indices[rank::world] instead, which depends on the world size; for that, see
/// data/distributed_sampler.h.
class TRIREME_API GlobalBatch {
 public:
  /// Throws UsageError for sizes below 1, or for a data set smaller than one step (unless drop_last
  /// is false, which allows a smaller step).
  explicit GlobalBatch(const GlobalBatchOptions& options);

  const GlobalBatchOptions& options() const { return options_; }
  int64_t samples_per_step() const { return options_.leaf_size * options_.leaves; }
  int64_t steps_per_epoch() const { return positions_.steps_per_epoch(); }
  const StepPositions& positions() const { return positions_; }
  /// The samples of that step: samples_per_step(), or what is left of its epoch.
  int64_t samples_of(int64_t step) const;
  int64_t epoch_of(int64_t step) const { return positions_.of(step).epoch; }

  Leaf leaf(int64_t step, int64_t g) const;
  /// Samples [begin, begin + count) of a whole step, whichever leaves they belong to
  /// (data/share_deal.h).
  Leaf part(int64_t step, int64_t begin, int64_t count) const;
  /// This rank's M / world leaves. Throws UsageError if the world size does not divide M, unless
  /// they are dealt unevenly.
  std::vector<Leaf> leaves_of(int rank, int world, int64_t step, Deal deal = Deal::blocks) const;

 private:
  Permutation order_of(int64_t epoch) const;
  Leaf leaf_in(const Permutation& order, int64_t step, int64_t g) const;
  Leaf part_in(const Permutation& order, int64_t step, int64_t begin, int64_t count) const;

  GlobalBatchOptions options_;
  StepPositions positions_;
};

}  // namespace trireme
