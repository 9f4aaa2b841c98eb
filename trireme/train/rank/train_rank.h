// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/train/rank/task_options.h"
#include "trireme/train/train_main.h"

// The part of a training command that runs as one rank. front/train_front.h starts it.
namespace trireme {

/// Runs one rank from start to end: group, log.jsonl, program.train, stop signals, the run folder's
/// lock. `words` are what the front half wrote after TrainFront::rank_command. Returns the exit
/// code; throws errors after the other ranks have been notified (report_failure()).
///
/// Call it only from main(), on its thread: it configures the process, ignores SIGPIPE, and handles
/// SIGINT, SIGTERM, SIGHUP and SIGUSR1 once the run is built.
TRIREME_API int train_rank(const Words& words, const MainProgram& program);

}  // namespace trireme
