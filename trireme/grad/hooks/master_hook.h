// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// One rank collects all gradients (the parameter-server scheme), which all_reduce has replaced;
// provided for reference and for measurements. The master's link carries each bucket (n − 1) times
// in each direction.
namespace trireme {

/// Gradients are reduced to rank `master`, which sends the result back: every rank gets it, with
/// the bits of an all_reduce.
TRIREME_API CommHook parameter_server_hook(int master = 0);
/// Gradients are reduced to rank `master` and stay there: the master steps and broadcasts its
/// weights. The other ranks keep their own gradients.
TRIREME_API CommHook reduce_to_master_hook(int master = 0);

}  // namespace trireme
