// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/config/keys.h"

namespace trireme {

/// The keys of this version: those of every section, and behind them what deepspeed_keys() adds.
std::vector<KeyInfo> built_in_keys();
/// Keys that a ds_config.json may hold and that do not run here.
std::vector<KeyInfo> deepspeed_keys();

}  // namespace trireme
