// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// When and where checkpoints are written, and how many are kept.
struct CheckpointSection {
  int64_t every = 0;
  int64_t keep = 2;
  bool at_end = true;
  std::optional<std::string> folder;

  void fields(Fields& f) {
    f.field({.path = "checkpoint.every",
             .min = 0,
             .max = f.kMany,
             .help = "steps between two checkpoints; 0: only at the end"},
            every);
    f.field({.path = "checkpoint.keep",
             .min = 1,
             .max = f.kMany,
             .help = "number of most recent checkpoints to keep"},
            keep);
    f.field({.path = "checkpoint.at_end", .help = "write a checkpoint after the last step"},
            at_end);
    f.field({.path = "checkpoint.folder",
             .help = "folder for checkpoints; by default the run's folder"},
            folder);
  }
};

}  // namespace trireme
