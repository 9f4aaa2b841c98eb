// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/launch/flags/options.h"
#include "trireme/launch/supervisor.h"

// How a front half, which has read flags and files, starts what does the work.
namespace trireme {

/// A job of options.nproc_per_node ranks of `command`, watched until its end; with --dry-run only
/// printed. The exit code.
/// `met`: as launch_workers() has it.
int start_ranks(const launch::RunOptions& options, const std::vector<std::string>& command,
                launch::FailureReport report = launch::FailureReport::block,
                const std::function<void(const std::vector<int>&)>& met = {});

/// One process that starts nobody (`trireme generate`, a rank of another launcher): this process
/// becomes `command`, tuned.
[[noreturn]] void become(const std::vector<std::string>& command);

}  // namespace trireme
