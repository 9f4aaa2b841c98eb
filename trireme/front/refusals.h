// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/planner/memory_plan.h"
#include "trireme/planner/memory_verdict.h"

// What `trireme train` refuses before it starts a rank, and `trireme config check` says beforehand.
namespace trireme {

/// A sentence for each; empty where a start would be tried. Of a configuration that is right by
/// itself, on `ranks` ranks whose batches come out. Without `built_in_model` the program brings its
/// model and its data, and nothing is said of model.* and data.*.
std::vector<std::string> refusals_of(const Config& config, int ranks, bool built_in_model = true);

/// The plan of one rank that computes on the CPU against this machine, `here` of the ranks being on
/// it.
struct MemoryCheck {
  bool known = false;  // the planner knows such a run
  MemoryPlan plan;
  MemoryVerdict verdict;
  bool impossible() const { return known && verdict.fit == MemoryVerdict::Fit::impossible; }
  /// Why it is refused, and what to do.
  std::string refusal() const;
};
MemoryCheck check_memory(const Config& config, int ranks, int here);

}  // namespace trireme
