// SPDX-License-Identifier: Apache-2.0
// Rules on what ends a run and on reproducible runs.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/training.h"

namespace trireme {

void training_rules(const Config& c, Findings& f) {
  const auto training = c.section<TrainingSection>();

  if (f.fine({"training.steps", "training.epochs"}) && training.steps == 0 && training.epochs == 0)
    f.complain("training.steps",
               "is 0 and nothing else ends the training: set training.steps or training.epochs");

  if (f.fine({"training.leaves"})) {
    auto leaves = training.leaves;
    if (leaves & (leaves - 1))
      f.complain("training.leaves", fmt::format("must be a power of two, found {}", leaves));
  }
}

}  // namespace trireme
