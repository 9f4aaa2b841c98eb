// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/train/gradients/gradients.h"

namespace trireme {

/// Where each tensor that this rank's optimizer updates begins in the flattened parameter that this
/// rank's model has: 0 where it is all of it, else (ZeRO) the first element of the shard.
std::map<std::string, int64_t> owned_places(Gradients& gradients);

}  // namespace trireme
