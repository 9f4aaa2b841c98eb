// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/error_file.h"

// Which worker failed first, and the block in torch's shape that says so. Pure.
namespace trireme::launch {

struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  int exit_code = 0;        // -n: killed by signal n
  int64_t observed_ns = 0;  // wall clock, when the launcher saw it end
  std::optional<ErrorReport> report;
  std::string error_file;  // where it stays; "": nowhere
  std::string note;        // what the launcher knows beside: killed for memory

  /// It only says that another rank went away (PeerLost, Aborted, Timeout).
  bool is_consequence() const;
  /// When it failed: by its own report, else as observed.
  int64_t time_ns() const;
  std::string explanation() const;
};

/// The index of the first cause: the earliest failure that is not a consequence; if all are, the
/// earliest.
TRIREME_API size_t first_cause(const std::vector<WorkerFailure>& failures);

/// The same in one line: "rank 1 (pid 4711) was ended by SIGKILL", "rank 0 (pid 4710) failed with
/// exit code 1: ValueError: batch 3".
TRIREME_API std::string failure_sentence(const WorkerFailure& failure);

/// "… in step 7", "step 7: …": what fails so again did not fail by chance.
TRIREME_API bool names_a_step(const std::string& message);

/// torch's block, with the others by time. `name` is the program.
TRIREME_API std::string format_error_block(const std::string& name, const std::string& host,
                                           const std::vector<WorkerFailure>& failures);

}  // namespace trireme::launch
