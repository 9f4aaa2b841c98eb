// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/train/rank/task_options.h"
#include "trireme/train/train_main.h"

// The half of a training command that is one of its ranks. front/train_front.h starts it.
namespace trireme {

/// One rank of a run from its first line to its last: group, log.jsonl, program.train, stop
/// signals, the run folder's lock. `words` are what the front half wrote behind
/// TrainFront::rank_command. The exit code; errors leave by throwing, after the other ranks know of
/// them (report_failure()).
///
/// For main() alone, on its thread: it tunes the process, ignores SIGPIPE, and takes SIGINT,
/// SIGTERM, SIGHUP and SIGUSR1 once the run is built.
TRIREME_API int train_rank(const Words& words, const MainProgram& program);

}  // namespace trireme
