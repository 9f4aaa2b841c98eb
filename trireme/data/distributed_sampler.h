// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

namespace detail {
template <class C, class A>
A argument_of(void (C::*)(A));
using TorchSampler = torch::data::samplers::Sampler<>;
// c10::optional in LibTorch 1.13, std::optional later: whatever the base says.
using SamplerSize = decltype(argument_of(&TorchSampler::reset));
using SamplerBatch = std::invoke_result_t<decltype(&TorchSampler::next), TorchSampler&, size_t>;
}  // namespace detail

struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;  // the same on every rank
  bool drop_last = false;
};

/// This rank's share of a data set, for LibTorch's own loader; PyTorch's DistributedSampler by
/// contract: an order of the epoch that all ranks agree on (a pure function of seed and epoch),
/// made even by repeating its start (or, with drop_last, by dropping its tail), of which this rank
/// takes positions rank, rank + world, … Every rank draws the same number of indices. The order
/// itself is ours, not the one Python would draw.
///
/// Epochs: set_epoch(e) names the epoch of the next reset(); a reset() without it goes on to the
/// following epoch, so the order changes from epoch to epoch even if nobody calls set_epoch. The
/// first reset() begins epoch 0. begin() of a loader calls reset().
///
/// make_data_loader copies its sampler. A DistributedSampler is a handle: copies share epoch and
/// position, so set_epoch() and save() on yours reach the loader's. Not thread-safe (the loader
/// calls it on the caller's thread).
///
/// Checkpoints: save() writes the epoch and how many samples of it the loop has taken. A loader
/// with workers draws indices ahead of its loop, so the loop says what it takes: it runs over
/// counted(*loader, sampler) (data/counted.h), or calls consumed(). After load(), the first reset()
/// goes on from that place, and so does set_epoch() of the epoch that was loaded.
class TRIREME_API DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  using Options = DistributedSamplerOptions;
  /// Throws UsageError for an empty data set, or a rank outside the world.
  DistributedSampler(size_t size, size_t num_replicas, size_t rank, Options options = {});

  void set_epoch(size_t epoch);
  size_t epoch() const;
  /// Indices that this rank draws in an epoch.
  size_t num_samples() const;
  /// Drawn in this epoch so far, by whoever draws.
  size_t index() const;
  /// The loop has taken so many more samples of this epoch. UsageError for more than were drawn.
  void consumed(size_t samples);
  /// Samples of this epoch that the loop has taken.
  size_t position() const;

  void reset(detail::SamplerSize new_size = {}) override;
  /// Up to batch_size indices; empty when the epoch is over.
  detail::SamplerBatch next(size_t batch_size) override;
  /// UsageError where samples of this epoch are drawn and nobody said how many the loop took.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// UsageError for the place in another order: another data set's size, seed, shuffle, drop_last,
  /// or a number of ranks that cannot stand there. Corrupt for no place at all.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
