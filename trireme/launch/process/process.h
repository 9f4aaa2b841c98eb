// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme::launch {

/// One process to start. Descriptors are the caller's: -1 inherits.
struct ProcessSpec {
  std::string program;            // a path, from find_program
  std::vector<std::string> argv;  // with argv[0]
  std::vector<std::string> env;   // "NAME=value"
  std::vector<int> cpus;          // to bind to; empty: inherited mask
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  sigset_t mask{};                   // signal mask of the program
  std::vector<int> default_signals;  // dispositions to reset
};

/// Forks and executes: leader of its own process group, killed by the kernel when the calling
/// thread's process ends. Returns the pid once the program runs; an exec that failed is a
/// UsageError with the system's reason.
TRIREME_API pid_t start_process(const ProcessSpec& spec);

/// `name` itself if it has a '/', else the first executable in $PATH. UsageError: not there, or not
/// executable.
TRIREME_API std::string find_program(const std::string& name);

}  // namespace trireme::launch
