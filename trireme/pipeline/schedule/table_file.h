// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

// Tables in files: csv.h reads their text.
namespace trireme::pipeline {

struct TableFile {
  Schedule given;     // as it stands in the file
  Schedule complete;  // … with messages, where it has none and its stages are all on a rank
};

/// Does not judge the schedule. Throws ResourceError for a file that cannot be read or is larger
/// than 64 MiB, and UsageError as read_table().
TRIREME_API TableFile read_table_file(const std::string& path);

/// The table as it stands in the file, proved by check_schedule(). Throws UsageError, one sentence
/// that begins with `asked_for` (who names the file), where there is no such file, or it is no
/// table, or a wrong one.
TRIREME_API Schedule proven_table(const std::string& path, const std::string& asked_for);

}  // namespace trireme::pipeline
