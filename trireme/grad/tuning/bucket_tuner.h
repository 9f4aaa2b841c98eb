// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/grad/bucket_plan.h"

// Which buckets a training run is fastest with, found while it trains. Pure: times in, settings
// out.
namespace trireme {

enum class BucketAlgorithm : uint8_t { all_reduce, scatter_gather };  // reduce_scatter, all_gather

/// How gradients are cut into buckets, in which order those leave, and what reduces one.
struct BucketSetting {
  int64_t bytes = 0;
  BucketOrder order = BucketOrder::arrival;
  BucketAlgorithm algorithm = BucketAlgorithm::all_reduce;
  bool operator==(const BucketSetting&) const = default;
};

struct TunerOptions {
  int block = 4;           // steps of one measurement
  int skip = 2;            // … after so many that do not count: times come a step late, and new
                           // buckets are laid out
  int pairs = 5;           // measurements of a candidate, each beside one of what is best so far
  double gain = 0.02;      // part of the time that a candidate must save to be taken
  double hopeless = 0.10;  // … and lose in its first pair not to be tried further
  double budget = 0.02;    // part of all time so far that trying may have cost
};

/// Tries candidates one after the other against the best so far, in blocks of steps that alternate,
/// and takes one whose median ratio is good enough. What trying costs is bounded: a block of a
/// candidate begins only while the time lost to slower ones is within the budget, so that the run
/// as a whole stays within it of what it would have been. Sizes are tried first, then the order,
/// then the algorithm, each with the best of the former.
class BucketTuner {
 public:
  /// `sizes`: candidates beside start.bytes.
  BucketTuner(BucketSetting start, std::vector<int64_t> sizes, TunerOptions options = {})
      : best_(start), start_(start), sizes_(std::move(sizes)), options_(options) {
    next_candidate();
  }

  bool done() const { return done_; }
  /// Of the next step.
  const BucketSetting& setting() const { return trying_ ? candidate_ : best_; }
  const BucketSetting& best() const { return best_; }
  /// Tried to the end or given up.
  int tried() const { return tried_; }
  /// Seconds of a step, medians of the last comparison that `best` won; 0 where the start is best.
  double seconds_before() const { return before_; }
  double seconds_after() const { return after_; }

  /// The step took so long on the slowest rank: the same number on all ranks.
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
      trying_ = lost_ <= options_.budget * elapsed_;  // else another block of the best
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
