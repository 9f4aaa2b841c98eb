// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/supervisor.h"

// What the verbs call. These own their process: they block signals, become the reaper of orphans,
// write to stderr. Call them from main's thread.
namespace trireme::launch {

/// The whole of a job on one host, or this host's part of it: private folder and secret, store on
/// loopback, environment, CPUs, workers, watching, cleaning up. Returns the exit code; UsageError
/// or ResourceError before anything ran. Notes and warnings of the options go to the log first.
///
/// `met`, if given, hears how many workers each node has, each time before the first of them
/// starts: nodes may have come or gone. What it throws ends the launcher.
TRIREME_API int launch_workers(const RunOptions& options, const std::vector<std::string>& command,
                               FailureReport report = FailureReport::block,
                               const std::function<void(const std::vector<int>&)>& met = {});

/// What launch_workers would start, as JSON; starts nothing. Port, store and secret are shown as
/// "<…>" where they are made at start.
TRIREME_API std::string dry_run(const RunOptions& options, const std::vector<std::string>& command);

/// For a program of one process: sets threads and core type in this process's environment, where
/// the user has not, so that the program that is executed next starts with them.
TRIREME_API void tune_single_process_env();

/// tune_single_process_env(), then execve: comes back only by UsageError.
[[noreturn]] TRIREME_API void exec_single_process(const std::vector<std::string>& command);

}  // namespace trireme::launch
