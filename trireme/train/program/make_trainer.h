// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// Of a program's pieces. UsageError for what it asks and cannot have, with its name.
std::unique_ptr<Trainer::Impl> make_trainer(Program& program, const Config& config, Group group,
                                            bool fresh = true);
/// Of the model and the data that the configuration names.
std::unique_ptr<Trainer::Impl> make_built_in_trainer(Program& program, const Config& config,
                                                     Group group, bool fresh = true);

}  // namespace trireme
