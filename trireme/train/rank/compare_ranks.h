// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"

namespace trireme {

/// Compares what all ranks have before anything is built: versions, configuration, BLAS, limits,
/// memory, disk, clocks. Rank 0 prints a table of what is not alike. UsageError on all ranks: what
/// must agree does not. Every rank must call it.
void compare_ranks(const Config& config, Group world, const std::string& run_dir);

/// Only the configuration, where ranks have come later than others, which read it by themselves.
void compare_configurations(const Config& config, Group world);

}  // namespace trireme
