// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"

namespace trireme::launch {

/// A TCP port on which nobody listens: `wanted` (ResourceError if somebody does), or for 0 one that
/// the kernel chooses. It is left free, for a worker to listen on.
TRIREME_API int free_port(int wanted = 0);

}  // namespace trireme::launch
