// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/config/keys.h"

namespace trireme {

/// Returns the keys of this version: those of every section, followed by deepspeed_keys().
std::vector<KeyInfo> built_in_keys();
/// Returns keys that a ds_config.json may hold but that have no effect here or are refused.
std::vector<KeyInfo> deepspeed_keys();

}  // namespace trireme
