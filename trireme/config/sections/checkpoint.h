// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// When and where checkpoints are written, and how many are kept.
struct CheckpointSection {
  int64_t every = 0;
  double every_minutes = 0;
  bool automatic = false;
  double budget = 0.02;
  int64_t keep = 2;
  int64_t keep_best = 0;
  int64_t keep_every = 0;
  bool names = false;
  bool at_end = true;
  bool async = false;
  int64_t snapshot_every = 0;
  bool neighbour = false;
  std::string on_error = "warn";
  std::optional<std::string> folder;
  std::optional<std::string> init;
  std::optional<std::vector<std::string>> init_map;
  std::optional<std::vector<std::string>> init_except;

  /// Whether steps are saved beside the last one and those on a signal.
  bool saves_during_run() const {
    return every > 0 || every_minutes > 0 || automatic || keep_every > 0 || keep_best > 0 || names;
  }

  /// Whether a rank keeps copies of its state in memory.
  bool makes_snapshots() const { return snapshot_every > 0 || (async && saves_during_run()); }

  void fields(Fields& f) {
    f.field({.path = "checkpoint.every",
             .min = 0,
             .max = f.kMany,
             .help = "steps between two checkpoints; 0: not at an interval of steps"},
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
             .help = "the share of the run's time that checkpoints may take: waiting for them, and "
                     "what steps take longer beside an asynchronous one"},
            budget);
    f.field({.path = "checkpoint.keep",
             .min = 1,
             .max = f.kMany,
             .help = "number of most recent checkpoints to keep"},
            keep);
    f.field({.path = "checkpoint.keep_best",
             .min = 0,
             .max = f.kMany,
             .help = "number of checkpoints with the lowest held-out loss to keep as well; an "
                     "evaluation that is among them saves its step; needs training.eval_every or "
                     "training.eval_epochs"},
            keep_best);
    f.field({.path = "checkpoint.keep_every",
             .min = 0,
             .max = f.kMany,
             .help = "steps between two checkpoints that are kept for ever; 0: none"},
            keep_every);
    f.field(
        {.path = "checkpoint.names",
         .help = "links beside the steps: last; best, with keep_best; interrupt, where a signal "
                 "ended the run; and epoch_N, for which the last step of each epoch is saved. "
                 "The steps of the last two stay"},
        names);
    f.field({.path = "checkpoint.at_end", .help = "write a checkpoint after the last step"},
            at_end);
    f.field({.path = "checkpoint.async",
             .help = "write checkpoints while training goes on: it waits for a copy in memory, of "
                     "which each rank keeps two; the last one is waited for"},
            async);
    f.field({.path = "checkpoint.snapshot_every",
             .min = 0,
             .max = f.kMany,
             .help = "steps between two snapshots in memory, which the launcher holds and "
                     "--max-restarts goes on from; they are written only when a rank has died. "
                     "Each rank keeps two copies of its state; 0: none beside checkpoint.async"},
            snapshot_every);
    f.field(
        {.path = "checkpoint.neighbour",
         .help = "where hosts may leave (--nnodes=MIN:MAX): the launcher of the next host holds "
                 "a copy, too, of what the ranks of a host have in memory, so that a host that "
                 "dies costs no read of a checkpoint"},
        neighbour);
    f.field(
        {.path = "checkpoint.on_error",
         .choices = "warn stop",
         .help = "when a checkpoint during the run cannot be written: warn and continue, or stop; "
                 "one after the last step or on a signal that fails always ends the run"},
        on_error);
    f.field({.path = "checkpoint.folder",
             .help = "folder for checkpoints; by default the run's folder"},
            folder);
    f.field(
        {.path = "checkpoint.init",
         .help = "run or step folder whose weights a new run starts with, or a .pt, a safetensors "
                 "file, or a folder of Hugging Face or of torch.distributed.checkpoint; all names "
                 "must match, and GPT-2's are mapped"},
        init);
    f.field({.path = "checkpoint.init_map",
             .help = "prefixes of names there and here: old.prefix=new.prefix"},
            init_map);
    f.field({.path = "checkpoint.init_except",
             .help = "patterns (* and ?) of names that may be missing there, or superfluous"},
            init_except);
  }
};

}  // namespace trireme
