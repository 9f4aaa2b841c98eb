// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// Keeps gradients on their rank, for training that averages weights instead
// (optim/averaging/model_averaging.h).
namespace trireme {

/// While `local()` returns false, buckets are reduced by `together` (empty: all_reduce); once it
/// returns true, only within `near` (the ranks of a host, say), or not at all if `near` is empty.
/// It is called once per bucket in every round and must return the same on all ranks. The mean of a
/// bare DDP, or the sum, is then over the ranks of `near`. Source: torch's post_localSGD_hook.
TRIREME_API CommHook local_sgd_hook(std::function<bool()> local, Group near = {},
                                    CommHook together = {});

}  // namespace trireme
