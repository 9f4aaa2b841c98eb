// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/tensor/state.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

/// Fills what the walk shows ("model.<name>") from checkpoint.init, if that is given; `elsewhere`:
/// patterns of names there that are no matter of this walk. Returns what to say of it, or "". Every
/// rank calls it.
std::string load_initial_weights(const Config& config, const StateWalk& walk, const Group& group,
                                 const TiedNames& tied = {},
                                 const std::vector<std::string>& elsewhere = {});

}  // namespace trireme
