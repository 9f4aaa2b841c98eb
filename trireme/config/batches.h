// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/export.h"

// Plan: train = micro × accumulation × dp (design §4, "Batches"). Pure.
namespace trireme {

struct Batches {
  int64_t train = 0;         // samples of one optimizer step, over all ranks
  int64_t micro = 0;         // samples of one forward and backward on one rank
  int64_t accumulation = 0;  // micro-batches of one optimizer step on one rank
  int dp = 0;
  /// Says so when a number of an earlier file gave way to a later one; else empty.
  std::string note;
};

/// One of the three numbers as given.
struct BatchNumber {
  int64_t value = 0;
  std::string origin;
  /// From an earlier file than the newest batch number: it gives way when the newer ones need that.
  bool yields = false;
};

struct BatchInputs {
  std::optional<BatchNumber> train, micro, accumulation;
};

/// Numbers that are absent are derived; accumulation is 1 where nothing says otherwise. Throws
/// UsageError with every factor and its origin when the numbers contradict each other or do not
/// divide.
TRIREME_API Batches solve_batches(const BatchInputs& given, int dp);

}  // namespace trireme
