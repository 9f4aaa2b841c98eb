// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/data/distributed_sampler.h"

namespace trireme {

/// The batches of a LibTorch loader, counted as the loop takes them. Returned by counted().
template <class Loader>
class CountedBatches {
 public:
  CountedBatches(Loader& loader, DistributedSampler sampler)
      : loader_(&loader), sampler_(std::move(sampler)) {
    const auto& o = loader.options();
    if (!o.enforce_ordering && o.workers > 1)
      throw UsageError(
          "counted: a loader of " + std::to_string(o.workers) +
          " workers without enforce_ordering delivers batches in the order in which they become "
          "ready, so there is no position to resume from: set enforce_ordering(true)");
  }

  class iterator {
    using Inner = decltype(std::declval<Loader&>().begin());

   public:
    using iterator_category = std::input_iterator_tag;
    using reference = decltype(*std::declval<Inner&>());
    using value_type = std::remove_reference_t<reference>;
    using pointer = value_type*;
    using difference_type = std::ptrdiff_t;

    iterator(Inner inner, CountedBatches* batches) : inner_(std::move(inner)), batches_(batches) {}
    reference operator*() {
      reference batch = *inner_;
      count();
      return batch;
    }
    pointer operator->() { return &**this; }
    iterator& operator++() {
      count();  // a batch that was skipped without being read has been taken, too
      ++inner_;
      counted_ = false;
      return *this;
    }
    bool operator==(const iterator& other) const { return inner_ == other.inner_; }
    bool operator!=(const iterator& other) const { return inner_ != other.inner_; }

   private:
    void count() {
      if (!std::exchange(counted_, true)) batches_->took_one();
    }
    Inner inner_;
    CountedBatches* batches_;
    bool counted_ = false;
  };

  iterator begin() { return {loader_->begin(), this}; }
  iterator end() { return {loader_->end(), this}; }

 private:
  void took_one() {
    sampler_.consumed(std::min<size_t>(loader_->options().batch_size,
                                       sampler_.num_samples() - sampler_.position()));
  }
  Loader* loader_;
  DistributedSampler sampler_;
};

/// Makes a loop that can be saved and resumed, however far the loader draws ahead:
///
///   for (auto& batch : trireme::counted(*loader, sampler)) { …; torch::save(sampler, file); }
///
/// A batch counts as taken once the loop has received it: a state saved in the loop's body resumes
/// with the next batch. `loader` was made from `sampler` and must outlive the result.
template <class Loader>
CountedBatches<Loader> counted(Loader& loader, const DistributedSampler& sampler) {
  return {loader, sampler};
}

}  // namespace trireme
