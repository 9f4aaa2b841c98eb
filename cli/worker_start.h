// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/options.h"
#include "trireme/launch/supervisor.h"

// How the thin verbs start the half of Trireme that links torch.
namespace trireme {

/// libexec/trireme/trireme-worker beside bin/, in the build tree and installed. ResourceError where
/// it is missing.
std::string worker_program();
/// The same, "" where it is missing.
std::string find_worker_program();

/// A job of options.nproc_per_node ranks of `command`, watched until its end; with --dry-run only
/// printed. The exit code.
int start_ranks(const launch::RunOptions& options, const std::vector<std::string>& command,
                launch::FailureReport report = launch::FailureReport::block);

/// One process without ranks (`trireme generate`): this process becomes `command`, tuned.
[[noreturn]] void become(const std::vector<std::string>& command);

}  // namespace trireme
