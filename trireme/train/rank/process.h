// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"

// Settings of the process that a rank is alone in. They are for main(): a library that is a guest
// changes none of them.
namespace trireme {

/// Makes this process a good home for training: allocator thresholds, denormals flushed to zero.
TRIREME_API void tune_worker_process();
/// Memory ran out: what is free goes back to the kernel, and large blocks do so from now on. Kept
/// ones have holes between them, which a limit counts.
TRIREME_API void give_memory_back();

/// SIGINT, SIGTERM, SIGHUP and SIGUSR1 end the process until this is called: there is nothing to
/// save while a run is built. From then on the first asks the task to stop after its step, and a
/// second SIGINT or SIGTERM ends the process at once. SIGHUP and SIGUSR1 stay as they are where
/// somebody has set them: nohup ignores SIGHUP.
TRIREME_API void stop_after_the_step();
/// 0, or the signal that asked.
TRIREME_API int stop_signal();
/// The run has stopped and is saved: what asks again, a launcher that saw another rank leave, finds
/// nothing to stop.
TRIREME_API void deaf_to_stop_signals();

}  // namespace trireme
