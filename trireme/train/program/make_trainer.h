// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// How a run begins.
struct TrainerStart {
  bool fresh = true;                           // it is a new one, so checkpoint.init applies
  std::optional<DataOrigin> data_origin = {};  // of the one that it resumes
  std::optional<Batches> batches = {};         // as RunParts has it
  double lr_factor = 1;
};

/// Makes a trainer for a program's pieces. Throws UsageError, naming the key, for unsupported
/// settings.
std::unique_ptr<Trainer::Impl> make_trainer(Program& program, const Config& config, Group group,
                                            const TrainerStart& start = {});
/// Makes a trainer for the model and the data that the configuration names.
std::unique_ptr<Trainer::Impl> make_built_in_trainer(Program& program, const Config& config,
                                                     Group group, const TrainerStart& start = {});

}  // namespace trireme
