// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/state.h"

namespace trireme {

namespace detail {
template <class C, class A>
A argument_of(void (C::*)(A));
using TorchSampler = torch::data::samplers::Sampler<>;
// c10::optional in LibTorch 1.13, std::optional later: whichever the base class uses.
using SamplerSize = decltype(argument_of(&TorchSampler::reset));
using SamplerBatch = std::invoke_result_t<decltype(&TorchSampler::next), TorchSampler&, size_t>;
}  // namespace detail

struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;  // the same on every rank
  bool drop_last = false;
};

/// Selects this rank's part of a data set for LibTorch's own loader, with the contract of PyTorch's
/// DistributedSampler: all ranks agree on an order for each epoch (a pure function of seed and
/// epoch), which is padded by repeating its start (or, with drop_last, truncated) to a multiple of
/// the world size; this rank takes positions rank, rank + world, …. Every rank draws the same
/// number of indices. The order itself is ours, not the one that Python would draw.
///
/// Epochs: set_epoch(e) sets the epoch for the next reset(); a reset() without it advances to the
/// following epoch, so the order changes from epoch to epoch even if set_epoch is never called. The
/// first reset() begins epoch 0. A loader's begin() calls reset().
///
/// make_data_loader copies its sampler. A DistributedSampler is a handle: copies share the epoch
/// and the position, so set_epoch() and save() on your copy also apply to the loader's. Not
/// thread-safe (the loader calls it on the caller's thread).
///
/// Checkpoints: state_of(sampler) for save() and load() (checkpoint/own_state.h), or torch::save.
/// Both write the epoch and how many samples of it the loop has taken. A loader with workers draws
/// indices ahead of its loop, so the loop has to report what it takes: it either iterates over
/// counted(*loader, sampler) (data/counted.h) or calls consumed(). After load(), the first reset()
/// continues from the saved position, even if set_epoch() is called with the epoch that was loaded.
class TRIREME_API DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  using Options = DistributedSamplerOptions;
  /// Throws UsageError for an empty data set or a rank outside the world.
  DistributedSampler(size_t size, size_t num_replicas, size_t rank, Options options = {});

  void set_epoch(size_t epoch);
  size_t epoch() const;
  /// The number of indices that this rank draws in an epoch.
  size_t num_samples() const;
  /// The number of indices drawn in this epoch so far, including those that a loader drew ahead.
  size_t index() const;
  /// Reports that the loop has taken this many more samples of this epoch. UsageError if that is
  /// more than were drawn.
  void consumed(size_t samples);
  /// The number of samples of this epoch that the loop has taken.
  size_t position() const;

  void reset(detail::SamplerSize new_size = {}) override;
  /// Up to batch_size indices; empty when the epoch is over.
  detail::SamplerBatch next(size_t batch_size) override;
  /// UsageError if samples of this epoch have been drawn and consumed() was never called for it.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// The same for a checkpoint: visits "sampler.epoch", "sampler.index", "sampler.world" and what
  /// the order depends on.
  void state(StateVisitor& visitor);
  /// UsageError if the saved position belongs to a different order: a different data set size,
  /// seed, shuffle or drop_last, or a number of ranks for which no rank is at that position.
  /// Corrupt if the archive holds no valid position.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  void check_known(const char* call) const;
  void continue_from(int64_t epoch, int64_t index, int64_t ranks);
  std::shared_ptr<State> state_;
};

}  // namespace trireme
