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
  std::optional<std::string> init;
  std::optional<std::vector<std::string>> init_map;
  std::optional<std::vector<std::string>> init_except;

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
    f.field(
        {.path = "checkpoint.init",
         .help = "a run or step folder whose weights a new run begins with; all names must fit"},
        init);
    f.field({.path = "checkpoint.init_map",
             .help = "beginnings of names there and here: old.prefix=new.prefix"},
            init_map);
    f.field({.path = "checkpoint.init_except",
             .help = "patterns (* and ?) of names that may be missing there, or be there besides"},
            init_except);
  }
};

}  // namespace trireme
