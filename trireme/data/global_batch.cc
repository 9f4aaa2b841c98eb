// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/global_batch.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"

namespace trireme {

namespace {
const GlobalBatchOptions& checked(const GlobalBatchOptions& options) {
  check<UsageError>(options.leaf_size >= 1 && options.leaves >= 1,
                    "global batch: {} micro-batches of {} samples a step: both must be at least 1",
                    options.leaves, options.leaf_size);
  check<UsageError>(options.leaf_size <= options.dataset_size / options.leaves ||
                        (!options.drop_last && options.dataset_size >= 1 &&
                         options.leaf_size <= INT64_MAX / options.leaves),
                    "the data holds {} samples, fewer than one step reads ({} micro-batches of {} "
                    "samples): give more "
                    "data or make the batch smaller",
                    options.dataset_size, options.leaves, options.leaf_size);
  return options;
}
}  // namespace

GlobalBatch::GlobalBatch(const GlobalBatchOptions& options)
    : options_(checked(options)),
      positions_(options.dataset_size, options.leaf_size * options.leaves, options.drop_last,
                 options.origin) {}

Permutation GlobalBatch::order_of(int64_t epoch) const {
  return Permutation(options_.dataset_size,
                     stable_hash({options_.seed, static_cast<uint64_t>(epoch)}));
}

Leaf GlobalBatch::part_in(const Permutation& order, int64_t step, int64_t begin,
                          int64_t count) const {
  const DataOrigin at = positions_.origin_at(step);
  const int64_t first = at.at.sample + begin;
  Leaf part{0, at.number + begin, {}};
  part.ids.reserve(static_cast<size_t>(count));
  for (int64_t i = first; i < first + count; ++i)
    part.ids.push_back(options_.shuffle ? order(i) : i);
  return part;
}

int64_t GlobalBatch::samples_of(int64_t step) const {
  return std::min(samples_per_step(), options_.dataset_size - positions_.of(step).sample);
}

Leaf GlobalBatch::leaf_in(const Permutation& order, int64_t step, int64_t g) const {
  const int64_t samples = samples_of(step), begin = samples * g / options_.leaves;
  Leaf leaf = part_in(order, step, begin, samples * (g + 1) / options_.leaves - begin);
  leaf.index = g;
  return leaf;
}

Leaf GlobalBatch::part(int64_t step, int64_t begin, int64_t count) const {
  const int64_t samples = samples_of(step);
  check<UsageError>(begin >= 0 && count >= 0 && count <= samples - begin,
                    "global batch: there are no samples {} to {} of step {}: it has {}", begin,
                    begin + count, step, samples);
  return part_in(order_of(epoch_of(step)), step, begin, count);
}

Leaf GlobalBatch::leaf(int64_t step, int64_t g) const {
  check<UsageError>(g >= 0 && g < options_.leaves,
                    "global batch: there is no leaf {} of step {}: a step has {} leaves", g, step,
                    options_.leaves);
  return leaf_in(order_of(epoch_of(step)), step, g);
}

std::vector<Leaf> GlobalBatch::leaves_of(int rank, int world, int64_t step, Deal deal) const {
  check<UsageError>(world >= 1 && rank >= 0 && rank < world,
                    "global batch: no rank {} in a world of {}", rank, world);
  check<UsageError>(
      options_.leaves % world == 0 || deal == Deal::uneven,
      "{} micro-batches a step cannot be dealt to {} ranks evenly: choose a number of "
      "micro-batches that the ranks divide",
      options_.leaves, world);
  if (deal == Deal::uneven) {
    const auto order = order_of(epoch_of(step));
    std::vector<Leaf> leaves;
    for (int64_t g = options_.leaves * rank / world; g < options_.leaves * (rank + 1) / world; ++g)
      leaves.push_back(leaf_in(order, step, g));
    return leaves;
  }
  const int64_t each = options_.leaves / world;
  const auto order = order_of(epoch_of(step));
  std::vector<Leaf> leaves;
  leaves.reserve(static_cast<size_t>(each));
  for (int64_t i = 0; i < each; ++i)
    leaves.push_back(
        leaf_in(order, step, deal == Deal::blocks ? rank * each + i : i * world + rank));
  return leaves;
}

}  // namespace trireme
