// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/comm/start/run.h"
#include "trireme/config/config.h"

namespace trireme {

/// What comm.* asks of init_process_group.
TRIREME_API InitOptions init_options(const Config& config);

}  // namespace trireme
