// SPDX-License-Identifier: Apache-2.0
// The best checkpoints are those of evaluations; what is written while training goes on is not the
// last.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/training.h"

namespace trireme {
namespace {

void async_rule(const Config& c, Findings& f) {
  const char* async = "checkpoint.async";
  const auto s = c.section<CheckpointSection>();
  if (!f.fine({async}) || !s.async) return;
  if (!s.saves_during_run())
    f.idle(async,
           "nothing says when to save during the run (checkpoint.every, every_minutes, auto, "
           "keep_every, keep_best), and the checkpoint after the last step is waited for");
}

void snapshot_rule(const Config& c, Findings& f) {
  const char* every = "checkpoint.snapshot_every";
  if (!f.fine({every}) || c.section<CheckpointSection>().snapshot_every == 0) return;
  for (const char* device :
       {"zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"})
    if (f.fine({device}) && c.applies(device) && *c.value_text(device) == "\"nvme\"")
      f.complain(every, fmt::format("keeps copies of the state in memory, and {} is nvme, so that "
                                    "memory does not have to hold it. Set it to 0",
                                    device));
}

void neighbour_rule(const Config& c, Findings& f) {
  const char* neighbour = "checkpoint.neighbour";
  const auto s = c.section<CheckpointSection>();
  if (f.fine({neighbour}) && s.neighbour && !s.makes_snapshots())
    f.complain(neighbour,
               "copies what ranks have in memory, and they have nothing there. Set "
               "checkpoint.snapshot_every, or checkpoint.async and when to save");
}

}  // namespace

void checkpoint_rules(const Config& c, Findings& f) {
  async_rule(c, f);
  snapshot_rule(c, f);
  neighbour_rule(c, f);
  const char* best = "checkpoint.keep_best";
  if (!f.fine({best, "training.eval_every", "training.eval_epochs"})) return;
  const auto keep_best = c.section<CheckpointSection>().keep_best;
  if (keep_best == 0) return;
  const auto training = c.section<TrainingSection>();
  if (training.eval_every == 0 && !training.eval_epochs)
    f.complain(best, fmt::format("is {}, and training.eval_every is 0: no step has a held-out loss "
                                 "to compare. Set it, or training.eval_epochs",
                                 keep_best));
  else if (c.applies("data.type") && *c.value_text("data.type") == "\"dummy\"")
    f.complain(best, fmt::format("is {}, and data.type is dummy, which has no held-out part: no "
                                 "step has a loss to compare",
                                 keep_best));
}

}  // namespace trireme
