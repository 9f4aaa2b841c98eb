// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// When checkpoints are written, where, and how many stay.
struct CheckpointSection {
  int64_t every = 0;
  int64_t keep = 2;
  bool at_end = true;
  std::optional<std::string> folder;

  void fields(Fields& f) {
    f.field({.path = "checkpoint.every",
             .min = 0,
             .max = f.kMany,
             .help = "a checkpoint every so many steps; 0: at the end only"},
            every);
    f.field({.path = "checkpoint.keep",
             .min = 1,
             .max = f.kMany,
             .help = "how many of the last checkpoints stay"},
            keep);
    f.field({.path = "checkpoint.at_end", .help = "a checkpoint after the last step"}, at_end);
    f.field({.path = "checkpoint.folder", .help = "where; without it, the run's folder"}, folder);
  }
};

}  // namespace trireme
