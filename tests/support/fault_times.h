// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "trireme/base/clock.h"

namespace trireme::testing {

/// What scripts/faults makes docs/faults.md of: how long it took until the outcome of a fault was
/// there. A line in the file that TRIREME_FAULT_TIMES names; without it nothing.
inline void fault_took(const std::string& fault, double seconds) {
  const char* const path = std::getenv("TRIREME_FAULT_TIMES");
  if (!path || !*path) return;
  std::ofstream(path, std::ios::app) << fmt::format("{}\t{:.6f}\n", fault, seconds);
}
inline void fault_took(const std::string& fault, Clock::time_point since) {
  fault_took(fault, seconds_since(since));
}

}  // namespace trireme::testing
