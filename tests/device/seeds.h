// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <functional>

#include "tests/support/pretend_device/pretend_device.h"

namespace trireme::pretend {

/// body() under a few seeds; under 20 with TRIREME_SOAK=1.
inline void for_some_seeds(int few, const std::function<void()>& body) {
  for_seeds(std::getenv("TRIREME_SOAK") ? 20 : few, body);
}

}  // namespace trireme::pretend
