// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/comm/start/run.h"
#include "trireme/config/config.h"

namespace trireme {

/// Returns the options that comm.* gives for init_process_group.
TRIREME_API InitOptions init_options(const Config& config);

}  // namespace trireme
