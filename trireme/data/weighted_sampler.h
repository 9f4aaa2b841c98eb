// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/distributed_sampler.h"

namespace trireme {

struct DistributedWeightedSamplerOptions {
  /// Draws of an epoch, over all ranks. 0: as many as there are weights.
  size_t num_samples = 0;
  /// false: no sample is drawn twice in an epoch.
  bool replacement = true;
  uint64_t seed = 0;  // the same on every rank
  bool drop_last = false;
};

/// PyTorch's WeightedRandomSampler for ranks: sample i is drawn with probability weights[i] / their
/// sum. All ranks agree on the draws of an epoch (a pure function of weights, seed and epoch), and
/// this rank takes draws rank, rank + world, … as a DistributedSampler takes positions, so what the
/// ranks draw together is what one rank alone would draw. Without replacement a sample is drawn
/// among those that are left, as torch.multinomial does. The order is ours, not Python's.
///
/// Everything else is DistributedSampler's: epochs, padding (the epoch's first draws, again),
/// drop_last, copies that share a position, counted(), and checkpoints, which also remember the
/// weights. Memory: 8 bytes a weight, and 8 a draw without replacement.
class TRIREME_API DistributedWeightedSampler : public DistributedSampler {
 public:
  using Options = DistributedWeightedSamplerOptions;
  /// Throws UsageError for a weight that is negative or not finite, for weights that are all 0,
  /// and, without replacement, for more draws than there are samples of a weight above 0.
  DistributedWeightedSampler(std::vector<double> weights, size_t num_replicas, size_t rank,
                             Options options = {});

  /// UsageError if new_size is not the number of weights.
  void reset(detail::SamplerSize new_size = {}) override;
  detail::SamplerBatch next(size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  /// UsageError also if the weights, or replacement, are others than those of what was saved.
  void load(torch::serialize::InputArchive& archive) override;
  void state(StateVisitor& visitor);

 private:
  struct Draws;
  std::shared_ptr<Draws> draws_;
};

/// Weights under which every class is drawn equally often: 1 ÷ the number of samples of a sample's
/// class. `labels`: [samples] int64. UsageError for another shape or dtype.
TRIREME_API std::vector<double> balanced_weights(const at::Tensor& labels);

}  // namespace trireme
