// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/train/rank/task_options.h"
#include "trireme/train/train_main.h"

namespace trireme {

/// Implements `PROGRAM summary CONFIG …`, which prints for the program's own model what `trireme
/// summary` prints. `typed` is the program's name as typed; `words` follow "summary". Returns the
/// exit code; throws UsageError.
int own_summary(const MainProgram& program, const std::string& typed, const Words& words);

}  // namespace trireme
