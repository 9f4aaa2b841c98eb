// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/train/rank/task_options.h"
#include "trireme/train/train_main.h"

namespace trireme {

/// `PROGRAM summary CONFIG …`: what `trireme summary` prints, for a model of the program's own.
/// `typed` is the program as a person names it; `words` follow "summary". The exit code;
/// UsageError.
int own_summary(const MainProgram& program, const std::string& typed, const Words& words);

}  // namespace trireme
