// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/export.h"

// Solves train = micro × accumulation × dp (design §4, "Batches"). Pure functions.
namespace trireme {

struct Batches {
  int64_t train = 0;         // samples per optimizer step, over all ranks
  int64_t micro = 0;         // samples per forward and backward on one rank
  int64_t accumulation = 0;  // micro-batches per optimizer step on one rank
  int dp = 0;
  /// Of a step, over all ranks.
  int64_t micro_batches() const { return train / micro; }
  /// Set if a number of an earlier file was overruled by a later one; else empty.
  std::string note;
};

/// The same where fewer ranks are there than it was made for: as many samples a step, of which some
/// ranks may have a micro-batch more (`accumulation` is the most of a rank); or, with `scaled`, as
/// many for each rank.
TRIREME_API Batches on_fewer_ranks(const Batches& of_all, int dp, bool scaled);

/// One of the three numbers, as given.
struct BatchNumber {
  int64_t value = 0;
  std::string origin;
  /// True for a number from an earlier file than the newest batch number: it is dropped if the
  /// newer ones require it.
  bool yields = false;
};

struct BatchInputs {
  std::optional<BatchNumber> train, micro, accumulation;
};

/// Derives the absent numbers; accumulation defaults to 1. Throws UsageError with every factor and
/// its origin if the numbers contradict each other or do not divide.
TRIREME_API Batches solve_batches(const BatchInputs& given, int dp);

}  // namespace trireme
