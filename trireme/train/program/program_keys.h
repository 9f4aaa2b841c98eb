// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/config.h"
#include "trireme/train/program/program.h"

// Keys that a program of one's own cannot have.
namespace trireme {

/// UsageError for a key about the built-in models or their data that is given.
void check_no_built_in_keys(const Config& config);
/// UsageError for what is asked for and needs training or held-out data that the program has not.
void check_program_keys(const Config& config, const Sources& sources);

}  // namespace trireme
