// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/loader.h"
#include "trireme/data/position.h"
#include "trireme/data/token_batches.h"

namespace trireme {

/// Steps of `per_step` micro-batches by a budget of tokens. Step s of an epoch has its
/// micro-batches [s M, (s + 1) M), whatever the number of ranks; the tail of an epoch that is
/// shorter than a step is dropped (other micro-batches in each epoch).
class TRIREME_API TokenSteps {
 public:
  /// UsageError where there are fewer micro-batches than a step has.
  TokenSteps(const std::vector<int32_t>& lengths, const TokenBatchOptions& options,
             int64_t per_step, const DataOrigin& origin = {});

  int64_t steps_per_epoch() const { return positions_.steps_per_epoch(); }
  /// Of steps among an epoch's micro-batches: a position counts those.
  const StepPositions& positions() const { return positions_; }
  /// Samples of micro-batch g of a step.
  std::vector<int64_t> ids(int64_t step, int64_t g) const;
  /// Of a whole step, over all ranks.
  int64_t samples(int64_t step) const;
  int64_t per_step() const { return per_step_; }
  int64_t epoch_of(int64_t step) const { return positions_.of(step).epoch; }
  const TokenBatches& batches() const { return batches_; }
  int64_t max_tokens() const { return max_tokens_; }

 private:
  TokenBatches batches_;
  int64_t max_tokens_;
  int64_t per_step_;
  StepPositions positions_;
};

/// make(step) = this rank's micro-batches of the step: ranks have consecutive ones, as many each.
TRIREME_API PrefetchingLoader::MakeBatch token_step_batches(
    std::shared_ptr<const DataSource> source, std::shared_ptr<const TokenSteps> steps, int rank,
    int world);

}  // namespace trireme
