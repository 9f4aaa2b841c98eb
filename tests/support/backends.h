// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "trireme/comm/registry.h"

namespace trireme::testing {

/// Whether this build has the backend; who skips for want of it says so.
inline bool present(const std::string& backend) {
  const auto names = detail::present_backends();
  return std::find(names.begin(), names.end(), backend) != names.end();
}

}  // namespace trireme::testing
