// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/token_steps.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme {

TokenSteps::TokenSteps(const std::vector<int32_t>& lengths, const TokenBatchOptions& options,
                       int64_t per_step, const DataOrigin& origin)
    : batches_(lengths, options),
      max_tokens_(options.max_tokens),
      per_step_(std::max<int64_t>(1, per_step)),
      positions_(std::max(batches_.size(), per_step_), per_step_, true, origin) {
  check<UsageError>(per_step >= 1 && batches_.size() >= per_step,
                    "the data makes {} micro-batches of up to {} tokens, fewer than one step reads "
                    "({}): give more data or a smaller budget",
                    batches_.size(), options.max_tokens, per_step);
}

std::vector<int64_t> TokenSteps::ids(int64_t step, int64_t g) const {
  check<UsageError>(g >= 0 && g < per_step_, "there is no micro-batch {} of step {}: a step has {}",
                    g, step, per_step_);
  const Position at = positions_.of(step);
  return batches_.of(at.epoch, at.sample + g);
}

int64_t TokenSteps::samples(int64_t step) const {
  int64_t sum = 0;
  for (int64_t g = 0; g < per_step_; ++g) sum += static_cast<int64_t>(ids(step, g).size());
  return sum;
}

PrefetchingLoader::MakeBatch token_step_batches(std::shared_ptr<const DataSource> source,
                                                std::shared_ptr<const TokenSteps> steps, int rank,
                                                int world) {
  check<UsageError>(world >= 1 && rank >= 0 && rank < world && steps->per_step() % world == 0,
                    "{} micro-batches a step cannot be dealt to {} ranks", steps->per_step(),
                    world);
  const int64_t each = steps->per_step() / world;
  return [source = std::move(source), steps = std::move(steps), rank, each](int64_t step) {
    Batch batch;
    for (int64_t i = 0; i < each; ++i) {
      const auto ids = steps->ids(step, rank * each + i);
      MicroBatch micro = source->get_in_epoch(ids, steps->epoch_of(step));
      micro.samples = ids;
      for (int64_t& sample : micro.samples)  // unique in the run
        sample += steps->epoch_of(step) * source->size();
      batch.push_back(std::move(micro));
    }
    return batch;
  };
}

}  // namespace trireme
