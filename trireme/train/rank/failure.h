// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "trireme/base/export.h"

namespace trireme {

/// The last thing that a rank which failed does: says why, and returns the exit code for main().
/// Under a launcher (TORCHELASTIC_ERROR_FILE) the text goes to the file that it reads, because it
/// prints one report for the job; without one this process prints it. SIGTERM is ignored from here
/// on: the launcher ends the ranks when one has failed, and this report is not lost to that.
/// `built_in_model` is failure_text()'s.
TRIREME_API int report_failure(const std::exception& error, bool built_in_model = true);

}  // namespace trireme
