// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

namespace trireme {

/// Why the configured optimizer cannot keep its states in files (offload_optimizer) on so many
/// ranks, where that was said, and what to do; "" if it can, or is not to.
TRIREME_API std::string fault_of_file_states(const Config& config, int world);

}  // namespace trireme
