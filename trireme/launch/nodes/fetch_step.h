// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/snapshot/held_saves.h"
#include "trireme/checkpoint/steps/snapshot/spread_step.h"
#include "trireme/net/auth.h"

namespace trireme::launch {

/// The parts of a step that host `here` does not hold, from those that do. A host that does not
/// give one is passed over for what follows, and the others are asked that have it, too
/// (checkpoint.neighbour). `ends`: as of fetch_part(). ResourceError: a part did not come from any
/// of them.
TRIREME_API std::vector<HandedSnapshot> fetch_step(const SpreadStep& step,
                                                   const std::vector<HostParts>& hosts, size_t here,
                                                   const net::Credentials& credentials,
                                                   const std::function<bool()>& ends);

}  // namespace trireme::launch
