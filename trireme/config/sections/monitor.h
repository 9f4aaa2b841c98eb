// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What a run shows.
struct MonitorSection {
  std::optional<std::string> metrics;
  bool progress = true;
  bool gradient_noise_scale = false;

  void fields(Fields& f) {
    f.field({.path = "monitor.metrics",
             .help = "file for a second copy of metrics.jsonl (one is always in the run's folder)"},
            metrics);
    f.field({.path = "monitor.progress", .help = "show progress on the terminal"}, progress);
    f.field({.path = "monitor.gradient_noise_scale",
             .help = "measure the batch size that balances steps against samples; needs 2 ranks or "
                     "micro-batches"},
            gradient_noise_scale);
  }
};

}  // namespace trireme
