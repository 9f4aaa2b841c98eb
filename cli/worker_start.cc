// SPDX-License-Identifier: Apache-2.0
#include "cli/worker_start.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/launch/launch.h"

namespace trireme {

std::string find_worker_program() {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "";
  auto worker = self.parent_path().parent_path() / TRIREME_WORKER_PATH;
  return ::access(worker.c_str(), X_OK) == 0 ? worker.string() : "";
}

std::string worker_program() {
  std::string worker = find_worker_program();
  check<ResourceError>(
      !worker.empty(),
      "the program that trains, {}, is not beside this one's bin folder: build with "
      "LibTorch (scripts/build), or install both halves",
      TRIREME_WORKER_PATH);
  return worker;
}

int start_ranks(const launch::RunOptions& options, const std::vector<std::string>& command,
                launch::FailureReport report) {
  if (!options.dry_run) return launch::launch_workers(options, command, report);
  std::puts(launch::dry_run(options, command).c_str());
  return kExitDone;
}

void become(const std::vector<std::string>& command) { launch::exec_single_process(command); }

}  // namespace trireme
