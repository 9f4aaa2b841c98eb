// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/grad/bucket_plan.h"

// Finds the bucket setting with which a training run is fastest, while it trains. Pure: times in,
// settings out.
namespace trireme {

enum class BucketAlgorithm : uint8_t { all_reduce, scatter_gather };  // reduce_scatter, all_gather

/// How gradients are cut into buckets, the order in which buckets are sent, and how one is reduced.
struct BucketSetting {
  int64_t bytes = 0;
  BucketOrder order = BucketOrder::arrival;
  BucketAlgorithm algorithm = BucketAlgorithm::all_reduce;
  bool operator==(const BucketSetting&) const = default;
};

struct TunerOptions {
  int block = 4;  // steps per measurement
  int skip = 2;   // steps before each measurement that do not count: times arrive a step late, and
                  // buckets are rearranged
  int pairs = 5;  // measurements per candidate, each paired with one of the best setting so far
  double gain = 0.02;  // fraction of the time that a candidate must save to be chosen
  /// Fraction by which a candidate may lose its first pair before it is dropped.
  double hopeless = 0.10;
  double budget = 0.02;  // fraction of the total time so far that trials may have cost
};

/// Compares candidates one after another with the best setting so far, in alternating blocks of
/// steps, and adopts one whose median ratio is good enough. The cost of trials is bounded: a block
/// of a candidate begins only while the time lost to slower candidates is within the budget. Sizes
/// are tried first, then the order, then the algorithm, each with the best of the preceding.
class BucketTuner {
 public:
  /// `sizes`: candidates in addition to start.bytes.
  BucketTuner(BucketSetting start, std::vector<int64_t> sizes, TunerOptions options = {})
      : best_(start), start_(start), sizes_(std::move(sizes)), options_(options) {
    next_candidate();
  }

  bool done() const { return done_; }
  /// The setting for the next step.
  const BucketSetting& setting() const { return trying_ ? candidate_ : best_; }
  const BucketSetting& best() const { return best_; }
  /// The number of candidates whose trials are over, completed or abandoned.
  int tried() const { return tried_; }
  /// Seconds per step before and after the last change of best(), as medians of that comparison; 0
  /// if the start is best.
  double seconds_before() const { return before_; }
  double seconds_after() const { return after_; }

  /// Reports the time of a step on the slowest rank; the number must be the same on all ranks.
  void took(double seconds) {
    elapsed_ += seconds;
    if (done_) return;
    if (in_block_++ < options_.skip) return;
    block_ += seconds;
    if (in_block_ < options_.skip + options_.block) return;
    block_over(block_ / options_.block);
    in_block_ = 0;
    block_ = 0;
  }

 private:
  void block_over(double seconds) {
    if (!trying_) {
      base_ = seconds;
      trying_ = lost_ <= options_.budget * elapsed_;  // otherwise, another block of the best
      return;
    }
    trying_ = false;
    lost_ += std::max(0.0, seconds - base_) * (options_.block + options_.skip);
    ratios_.push_back(seconds / base_);
    bases_.push_back(base_);
    times_.push_back(seconds);
    const bool hopeless = ratios_.size() == 1 && ratios_[0] > 1 + options_.hopeless;
    if (!hopeless && static_cast<int>(ratios_.size()) < options_.pairs) return;
    ++tried_;
    if (!hopeless && median(ratios_) < 1 - options_.gain) {
      best_ = candidate_;
      before_ = median(bases_);
      after_ = median(times_);
    }
    next_candidate();
  }

  void next_candidate() {
    ratios_.clear(), bases_.clear(), times_.clear();
    for (;; ++stage_) {
      candidate_ = best_;
      if (stage_ < sizes_.size()) {
        candidate_.bytes = sizes_[stage_];
      } else if (stage_ == sizes_.size()) {
        candidate_.order = BucketOrder::registration;
      } else if (stage_ == sizes_.size() + 1) {
        candidate_.algorithm = BucketAlgorithm::scatter_gather;
      } else {
        done_ = true;
        return;
      }
      if (candidate_ == best_ || candidate_ == start_) continue;
      ++stage_;
      return;
    }
  }

  static double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
    return x[x.size() / 2];
  }

  BucketSetting best_, start_, candidate_;
  std::vector<int64_t> sizes_;
  TunerOptions options_;
  size_t stage_ = 0;
  bool trying_ = false, done_ = false;
  int in_block_ = 0, tried_ = 0;
  double block_ = 0, base_ = 0, elapsed_ = 0, lost_ = 0, before_ = 0, after_ = 0;
  std::vector<double> ratios_, bases_, times_;
};

}  // namespace trireme
