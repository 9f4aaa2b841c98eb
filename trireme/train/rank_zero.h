// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/comm/group.h"

namespace trireme {

/// What `body` returns on rank 0, on every rank; the others wait for it. What it throws there they
/// all throw: an error of the same kind, in the same words. `body` makes no call to the group.
std::string from_rank_0(Group world, const std::function<std::string()>& body);

}  // namespace trireme
