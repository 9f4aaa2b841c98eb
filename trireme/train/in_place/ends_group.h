// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "trireme/base/clock.h"

namespace trireme {

/// The group of ranks is finished, by whatever happened to one of them.
bool ends_group(const std::exception& error);

/// How long a rank that has left its group waits to hear of another: the launcher sees at once that
/// a worker has ended, so a group that failed for another reason is given up after this time.
inline constexpr Duration kRegroupPatience = std::chrono::seconds(10);

}  // namespace trireme
