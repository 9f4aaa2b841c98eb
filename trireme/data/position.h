// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"

// Where steps begin in the data. Pure: integers in, integers out.
namespace trireme {

/// A place in the data: so many samples of an epoch's order come before it. (Where micro-batches
/// are made by a budget of tokens, so many of the epoch's micro-batches.)
struct Position {
  int64_t epoch = 0, sample = 0;
  bool operator==(const Position&) const = default;
};

/// Where a run reads from: its step `step` begins at `at`. A checkpoint holds it, so that a run
/// goes on at its place with any number of samples a step.
struct DataOrigin {
  int64_t step = 0;
  Position at;
  int64_t number = 0;  // in the run, of that step's first sample: what dropout is keyed by
  bool operator==(const DataOrigin&) const = default;

  /// Corrupt if these cannot be a place in any data.
  TRIREME_API void check_possible() const;
};

/// Steps that read `per_step` samples each of epochs of `size` samples, from an origin on. A tail
/// of an epoch that is shorter than a step is dropped or, with drop_last false, is a step of its
/// own.
class TRIREME_API StepPositions {
 public:
  StepPositions(int64_t size, int64_t per_step, bool drop_last, const DataOrigin& origin);

  /// Of an epoch that is read from its beginning.
  int64_t steps_per_epoch() const { return steps_in(size_); }
  /// Where a step begins. UsageError for a step before the origin.
  Position of(int64_t step) const;
  /// What a run that continues with this step has to know.
  DataOrigin origin_at(int64_t step) const;
  /// The first step that begins in this epoch or a later one.
  int64_t first_step_of(int64_t epoch) const;

 private:
  int64_t steps_in(int64_t samples) const {
    return drop_last_ ? samples / per_step_ : (samples + per_step_ - 1) / per_step_;
  }
  int64_t size_, per_step_;
  bool drop_last_;
  DataOrigin origin_;
  int64_t steps_in_first_;  // of the epoch in which the origin lies
};

}  // namespace trireme
