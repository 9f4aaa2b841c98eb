// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "trireme/base/check.h"

// Inside optim: what every optimizer says about a number that cannot be.
namespace trireme {

inline void check_not_negative(const char* optimizer, const char* option, double value) {
  check<UsageError>(value >= 0 && std::isfinite(value), "{}: {} is {}: it must be 0 or more",
                    optimizer, option, value);
}

/// A decay rate: below 1, or nothing would ever be forgotten.
inline void check_rate(const char* optimizer, const char* option, double value) {
  check<UsageError>(value >= 0 && value < 1, "{}: {} is {}: it must lie in [0, 1)", optimizer,
                    option, value);
}

}  // namespace trireme
