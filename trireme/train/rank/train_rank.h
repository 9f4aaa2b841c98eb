// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/config/resolved.h"
#include "trireme/train/rank/task_options.h"
#include "trireme/train/train_main.h"

// The half of a training command that is one of its ranks. front/train_front.h starts it.
namespace trireme {

/// How the rank reads its configuration: as its front half did, with the same keys.
struct RankConfig {
  /// What the front half resolved.
  std::function<Config(std::string_view)> resolved = [](std::string_view text) {
    return load_resolved(text);
  };
  /// The file behind --config, of a rank that was started by hand, without a front half.
  std::function<Config(const ConfigInputs&)> files = [](const ConfigInputs& inputs) {
    return Config::load(inputs);
  };
};

/// One rank of a run from its first line to its last: group, log.jsonl, `train`, stop signals, the
/// run folder's lock. `words` are what the front half wrote behind TrainFront::rank_command. The
/// exit code; errors leave by throwing, after the other ranks know of them (report_failure()).
///
/// For main() alone, on its thread: it tunes the process, ignores SIGPIPE, and takes SIGINT and
/// SIGTERM once the run is built.
TRIREME_API int train_rank(const Words& words, const TrainFunction& train,
                           const RankConfig& load = {});

}  // namespace trireme
