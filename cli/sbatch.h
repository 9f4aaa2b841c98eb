// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme {

/// Gives a batch script to sbatch, on its stdin and without a shell, and prints the job's number on
/// a line of stdout; what sbatch says otherwise goes to stderr. The exit code of sbatch.
/// UsageError: there is none.
int submit(const std::string& script);

}  // namespace trireme
