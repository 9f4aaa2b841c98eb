// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// Keeps gradients on their rank, for training that averages weights instead
// (optim/averaging/model_averaging.h).
namespace trireme {

/// While `is_local()` returns false, buckets are reduced by `global_hook` (empty: all_reduce); once
/// it returns true, only within `inner_group` (such as the ranks of a host), or not at all if
/// `inner_group` is empty. `is_local` is called once per bucket in every round and must return the
/// same on all ranks. In a local round, the mean of a bare DDP, or the sum, is over the ranks of
/// `inner_group`. Source: torch's post_localSGD_hook.
TRIREME_API CommHook local_sgd_hook(std::function<bool()> is_local, Group inner_group = {},
                                    CommHook global_hook = {});

}  // namespace trireme
