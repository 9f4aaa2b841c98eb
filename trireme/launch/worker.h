// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/launch/error_file.h"

namespace trireme::launch {

/// A process that a launcher has started and watches, and how it ended.
struct Worker {
  int rank = 0;
  pid_t pid = -1;
  bool ended = false;
  int code = 0;  // -n: by signal n
  int64_t ended_ns = 0;
  std::string error_file;
  std::optional<ErrorReport> report;
  std::string note;
  bool stop_requested = false;   // SIGTERM or SIGKILL of ours, before it ended
  bool killed = false;           // SIGKILL of ours
  bool ended_by_itself = false;  // before anybody asked the job to end
  bool hung = false;             // and was killed for it

  /// By a signal that came to a worker and not to the launcher: it asks to be started again, or was
  /// interrupted.
  bool saved_and_left() const {
    return ended && !stop_requested && !report &&
           (code == kExitSavedRestart || code == kExitSignalBase + SIGINT);
  }
  bool failed() const {
    if (!ended || code == 0) return false;
    if (!stop_requested || hung) return true;
    // It was leaving because we said so; only its own report, or a crash, is worth telling.
    return report.has_value() || (code < 0 && code != -SIGTERM && !(killed && code == -SIGKILL));
  }
};

}  // namespace trireme::launch
