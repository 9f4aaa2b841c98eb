// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"

// Settings of a process that runs one rank. They are for main(): as a library in another program,
// Trireme changes none of them.
namespace trireme {

/// Configures this process for training: allocator thresholds, denormals flushed to zero.
TRIREME_API void tune_worker_process();
/// Called when memory ran out: returns free memory to the kernel, now and for large blocks from now
/// on. Blocks that are kept leave holes, which count towards a limit.
TRIREME_API void give_memory_back();

/// Until this is called, SIGINT, SIGTERM, SIGHUP and SIGUSR1 end the process, because there is
/// nothing to save while a run is built. Afterwards the first of them asks the task to stop after
/// its step, and a second SIGINT or SIGTERM ends the process at once (StopRequests). SIGHUP and
/// SIGUSR1 keep the disposition that somebody has set: nohup ignores SIGHUP.
TRIREME_API void stop_after_the_step();
/// Returns the signal that asked to stop, or 0.
TRIREME_API int stop_signal();
/// The run has stopped and is saved: what asks again, a launcher that saw another rank leave, finds
/// nothing to stop.
TRIREME_API void ignore_stop_signals();

}  // namespace trireme
