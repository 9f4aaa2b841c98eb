// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"
#include "trireme/checkpoint/steps/snapshot/held_saves.h"

namespace trireme {

struct RescueReport {
  bool saved = false;
  std::string text;  // a sentence
};

/// When the workers are dead: writes the newest step of each run folder that is complete in memory
/// and not published, as its saver would have, and says what it did or why it could not. Nothing is
/// said where there is nothing to do: of a step that is published (or older than `latest`), of one
/// that some rank had not copied. Ranks of other hosts are not here: such a step is not written.
/// `fence`: of the workers. Does not throw for what is in the memories or on the disk.
TRIREME_API std::vector<RescueReport> rescue_snapshots(const std::vector<HandedSnapshot>& handed,
                                                       const GenerationFence& fence = {});

}  // namespace trireme
