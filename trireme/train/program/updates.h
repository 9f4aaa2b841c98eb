// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/program/program.h"

// The updates of a program: the pieces that each one trains, and its configuration.
namespace trireme {

/// Returns the program's updates, or one update of all pieces. Throws UsageError unless names are
/// unique and every piece is known and in at most one update.
std::vector<Update> updates_of(Program& program, const Config& config,
                               const std::vector<Piece>& pieces);
/// Returns the configuration with an update's own keys set (Update::sets).
Config config_of_update(const Config& config, const std::vector<std::string>& sets);
/// Throws UsageError if the program has several updates and a key is given whose feature follows
/// the steps of one optimizer or keeps one file for them.
void check_keys_of_one_update(const Config& config, const PrecisionPlan& precision, size_t updates);

}  // namespace trireme
