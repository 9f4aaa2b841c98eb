// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/run_folder/retention.h"

// Deleting old steps of a run by hand, as its trainer would.
namespace trireme {

struct PrunePlan {
  int64_t latest = -1;              // the step that `latest` names, or the newest; -1: no step
  std::vector<SavedStep> keep, go;  // rising
  std::vector<int64_t> damaged;     // at first sight: neither counted nor deleted
};

/// Pure: what steps_to_delete() says of these (rising) once `latest` is saved.
TRIREME_API PrunePlan plan_prune(const std::vector<SavedStep>& good, int64_t latest,
                                 const RetentionRule& rule);

/// Looks at the steps of a run folder and plans; deletes what is to go unless it is a rehearsal,
/// under the lock that savers take. Steps that a link keeps (step_links.h) stay. With `rule.best`
/// the losses are read from the steps; UsageError where none has one. Corrupt when `latest` names
/// no step that is there; ResourceError when another process is saving, or a step could not be
/// deleted.
TRIREME_API PrunePlan prune_run(const std::string& run_dir, const RetentionRule& rule,
                                bool rehearsal);

}  // namespace trireme
