// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// Gradients that stay on their rank, for who averages weights instead (optim/model_averaging.h).
namespace trireme {

/// While `apart()` says no, buckets are reduced by `together` (empty: all_reduce); from then on
/// only within `near` (ranks of a host, say), or not at all where that is empty. Asked once a
/// bucket, in every round; all ranks answer alike. The mean of a bare DDP is then over the near
/// ranks; a sum is theirs. Source: torch's post_localSGD_hook.
TRIREME_API CommHook apart_hook(std::function<bool()> apart, Group near = {},
                                CommHook together = {});

}  // namespace trireme
