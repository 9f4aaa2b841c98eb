// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// When checkpoints are written, where, and how many stay.
struct CheckpointSection {
  int64_t every = 0;
  double every_minutes = 0;
  bool automatic = false;
  double budget = 0.02;
  int64_t keep = 2;
  int64_t keep_best = 0;
  int64_t keep_every = 0;
  bool at_end = true;
  std::string on_error = "warn";
  std::optional<std::string> folder;

  void fields(Fields& f) {
    f.field({.path = "checkpoint.every",
             .min = 0,
             .max = f.kMany,
             .help = "a checkpoint every so many steps; 0: not by their number"},
            every);
    f.field({.path = "checkpoint.every_minutes",
             .min = 0,
             .max = f.kWide,
             .help = "a checkpoint when the last one is so many minutes old, by rank 0's clock; 0: "
                     "not by the clock"},
            every_minutes);
    f.field({.path = "checkpoint.auto",
             .help = "a checkpoint as often as checkpoint.budget allows, by what the last one "
                     "cost; the first is after two steps, the others at least ten seconds apart"},
            automatic);
    f.field({.path = "checkpoint.budget",
             .min = 1e-4,
             .max = 0.5,
             .when = "checkpoint.auto=true",
             .help = "the share of the run's time that may go into waiting for checkpoints"},
            budget);
    f.field({.path = "checkpoint.keep",
             .min = 1,
             .max = f.kMany,
             .help = "how many of the last checkpoints stay"},
            keep);
    f.field({.path = "checkpoint.keep_best",
             .min = 0,
             .max = f.kMany,
             .help = "how many of those with the lowest held-out loss stay as well; an evaluation "
                     "that is among them saves its step; needs training.eval_every"},
            keep_best);
    f.field({.path = "checkpoint.keep_every",
             .min = 0,
             .max = f.kMany,
             .help = "a checkpoint every so many steps, which stays for ever; 0: none does"},
            keep_every);
    f.field({.path = "checkpoint.at_end", .help = "a checkpoint after the last step"}, at_end);
    f.field({.path = "checkpoint.on_error",
             .choices = "warn stop",
             .help = "when the disk does not take a checkpoint in mid-run: a warning, and the run "
                     "goes on, or its end; one after the last step or on a signal always ends it"},
            on_error);
    f.field({.path = "checkpoint.folder", .help = "where; without it, the run's folder"}, folder);
  }
};

}  // namespace trireme
