// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/config.h"
#include "trireme/train/program/program.h"

// Refuses keys that do not apply to a program of one's own.
namespace trireme {

/// Throws UsageError if a key about the built-in models or their data is given.
void check_no_built_in_keys(const Config& config);
/// Throws UsageError for settings that need training or held-out data that the program does not
/// have.
void check_program_keys(const Config& config, const Sources& sources);

}  // namespace trireme
