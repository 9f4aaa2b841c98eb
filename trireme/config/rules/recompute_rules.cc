// SPDX-License-Identifier: Apache-2.0
// Two keys select the blocks that are recomputed; only one of them may be given.
#include "trireme/config/rules/rules.h"

namespace trireme {

void recompute_rules(const Config& c, Findings& f) {
  const char *every = "training.recompute_every", *memory = "training.activation_memory_mb";
  if (f.broken(every) || f.broken(memory) || !c.applies(every)) return;
  if (c.get_int(every) > 0 && c.get_double(memory) > 0)
    f.complain(memory, "and training.recompute_every both select blocks: give only one of them");
}

}  // namespace trireme
