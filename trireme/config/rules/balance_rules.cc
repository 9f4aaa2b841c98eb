// SPDX-License-Identifier: Apache-2.0
// Rules for balance between unequal ranks.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/training.h"

namespace trireme {

void balance_rules(const Config& c, Findings& f) {
  const char *mode = "balance.mode", *stage = "zero_optimization.stage",
             *backoff = "balance.memory_backoff";
  if (f.broken(mode) || c.get_string(mode) == "none") return;
  auto at = [&](const char* path) {
    return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
  };
  if (!f.broken("training.reproducible") && c.section<TrainingSection>().reproducible)
    f.complain(mode, fmt::format("changes the shapes of micro-batches with the ranks' speed, and "
                                 "{} needs fixed shapes: remove one of them",
                                 at("training.reproducible")));
  if (f.broken(stage)) return;
  if (c.get_int(stage) >= 2)
    f.complain(mode, fmt::format("gives ranks different numbers of micro-batches, and with {} each "
                                 "micro-batch is a collective call: use stage 0 or 1",
                                 at(stage)));
  else if (c.get_int(stage) == 1 && !f.broken(backoff) && c.get_bool(backoff))
    f.complain(backoff,
               fmt::format("repeats a rank's part of a step, which {} does not allow because "
                           "gradients are sharded: set it to false, or use stage 0",
                           at(stage)));
}

}  // namespace trireme
