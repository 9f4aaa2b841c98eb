// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "trireme/base/export.h"

namespace trireme {

/// Reports the failure of a rank, as its last action, and returns the exit code for main(). Under a
/// launcher (TORCHELASTIC_ERROR_FILE) the text goes to the file that the launcher reads, which
/// prints one report for the job; otherwise this process prints it. SIGTERM is ignored from here
/// on, so that the launcher cannot end the rank before the report is written. `built_in_model` is
/// as in failure_text().
TRIREME_API int report_failure(const std::exception& error, bool built_in_model = true);

}  // namespace trireme
