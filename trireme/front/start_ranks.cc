// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/start_ranks.h"

#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/launch/launch.h"

namespace trireme {

int start_ranks(const launch::RunOptions& options, const std::vector<std::string>& command,
                launch::FailureReport report,
                const std::function<void(const std::vector<int>&)>& met) {
  if (!options.dry_run) return launch::launch_workers(options, command, report, met);
  std::puts(launch::dry_run(options, command).c_str());
  return kExitDone;
}

void become(const std::vector<std::string>& command) { launch::exec_single_process(command); }

}  // namespace trireme
