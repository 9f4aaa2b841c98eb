// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// Solves world = pp × dp × cp × tp: how many ways each kind of parallelism divides the ranks. Pure
// functions.
namespace trireme {

struct Degrees {
  int dp = 1;  // ranks that read different samples
  int tp = 1;  // ranks that hold parts of the same layers, and read the same samples
  int pp = 1;  // ranks that hold different layers, and read the same samples
  int cp = 1;  // ranks that hold different positions of the same samples
  /// Ranks that hold one copy of the model together.
  int model() const { return tp * pp; }
  /// Ranks that read the same samples.
  int together() const { return tp * pp * cp; }
};

struct DegreeInputs {
  struct Number {
    int64_t value = 1;
    std::string origin;
  };
  Number dp{0, ""};  // 0: what is left
  Number tp, pp, cp;
};

/// Throws UsageError with every factor and its origin if the product cannot be `world`.
TRIREME_API Degrees solve_degrees(const DegreeInputs& given, int world);

}  // namespace trireme
