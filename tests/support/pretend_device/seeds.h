// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <functional>

#include "tests/support/pretend_device/pretend_device.h"

namespace trireme::pretend {

/// A few seeds; 20 with TRIREME_SOAK=1 (scripts/soak --devices).
inline int some_seeds(int few) { return std::getenv("TRIREME_SOAK") ? 20 : few; }

/// body() under so many.
inline void for_some_seeds(int few, const std::function<void()>& body) {
  for_seeds(some_seeds(few), body);
}

}  // namespace trireme::pretend
