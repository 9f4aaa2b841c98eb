// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// Makes a trainer for a program's pieces. Throws UsageError, naming the key, for unsupported
/// settings. `fresh`: the run is a new one, so checkpoint.init applies.
std::unique_ptr<Trainer::Impl> make_trainer(Program& program, const Config& config, Group group,
                                            bool fresh = true);
/// Makes a trainer for the model and the data that the configuration names.
std::unique_ptr<Trainer::Impl> make_built_in_trainer(Program& program, const Config& config,
                                                     Group group, bool fresh = true);

}  // namespace trireme
