// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// Deleting old steps of a run by hand, as its trainer would.
namespace trireme {

struct PruneRule {
  int64_t keep = 1;   // so many of the newest up to the one that `latest` names, which is one
  int64_t every = 0;  // and those whose number is a multiple of it; 0: none
};

struct PrunePlan {
  int64_t latest = -1;            // the step that `latest` names, or the newest; -1: no step
  std::vector<int64_t> keep, go;  // rising
  std::vector<int64_t> damaged;   // at first sight: neither counted nor deleted
};

/// Pure. Later steps than `latest` stay: they are of a run that this one has branched off.
TRIREME_API PrunePlan plan_prune(const std::vector<int64_t>& good, int64_t latest,
                                 const PruneRule& rule);

/// Looks at the steps of a run folder and plans; deletes what is to go unless it is a rehearsal,
/// under the lock that savers take. Corrupt when `latest` names no step that is there;
/// ResourceError when another process is saving, or a step could not be deleted.
TRIREME_API PrunePlan prune_run(const std::string& run_dir, const PruneRule& rule, bool rehearsal);

}  // namespace trireme
