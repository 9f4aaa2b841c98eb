// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/program/program.h"

// The updates of a program: which pieces each of them steps, and with which configuration.
namespace trireme {

/// What the program says, or one update of all pieces. UsageError unless every name is there once
/// and every piece is known and in at most one update.
std::vector<Update> updates_of(Program& program, const Config& config,
                               const std::vector<Piece>& pieces);
/// The configuration with an update's own keys set (Update::sets).
Config config_of_update(const Config& config, const std::vector<std::string>& sets);
/// UsageError for a key whose feature follows the steps of one optimizer, or keeps one file for
/// them, in a program that has several updates.
void check_keys_of_one_update(const Config& config, const PrecisionPlan& precision, size_t updates);

}  // namespace trireme
