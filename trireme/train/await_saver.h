// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme {

/// Returns when no saver has the run folder, or after ten minutes: a launcher may be writing there
/// what ranks before these had in memory, to a slow disk. ResourceError.
void await_saver(const std::string& steps);

}  // namespace trireme
