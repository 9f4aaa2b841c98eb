// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme {

inline constexpr int64_t kFloatBytes = 4;

}  // namespace trireme
