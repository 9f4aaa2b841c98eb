// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// One device collects (the parameter-server flow): what all_reduce replaced, to run as it is
// described and to be measured against it. The master's link carries (n − 1) times a bucket each
// way.
namespace trireme {

/// Gradients are reduced to rank `master`, which sends the result back: every rank has it, with the
/// bits of an all_reduce.
TRIREME_API CommHook parameter_server_hook(int master = 0);
/// … and stay there: the master steps and broadcasts its weights. The other ranks' gradients are
/// their own.
TRIREME_API CommHook reduce_to_master_hook(int master = 0);

}  // namespace trireme
