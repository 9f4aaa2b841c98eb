// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"

namespace trireme {

struct TrainOptions {
  std::string run_dir;                // made where it is missing; config.json lies there
  std::optional<std::string> resume;  // a run folder or a step folder
  /// Written to run_dir/config.json when nothing refuses the run any more; "": nothing is.
  std::string config_json = {};
  /// Called when the run is built (and resumed), before its first step.
  std::function<void()> built = {};
  /// Looked at once a step. Not 0 (a signal, say): finish the step, save, return.
  std::function<int()> stop_asked = {};
  /// Called when this rank ran out of memory and is about to try with less (balance).
  std::function<void()> memory_short = {};
  std::function<void(const std::string&)> say =
      {};                // rank 0: lines for people (start, held-out loss, saved, end)
  int progress_fd = -1;  // rank 0: where the bar or the step lines go; -1: nowhere
};

struct TrainResult {
  int64_t steps = 0;
  int stopped =
      0;  // not 0: before the last step, because a rank was asked to; the same on all ranks
  std::string checkpoint;  // the last one; "" where none was saved
  double loss = 0;         // of the last step
  double held_out_loss = -1;
};

/// A whole run: build, resume, steps, evaluation, checkpoints, metrics. Every rank calls it. A run
/// that is resumed and has all its steps behind it says so and writes nothing.
/// ResourceError also where the run folder goes away while it trains.
TRIREME_API TrainResult train(const Config& config, Group group, const TrainOptions& options);

}  // namespace trireme
