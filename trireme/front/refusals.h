// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/planner/memory_plan.h"
#include "trireme/planner/memory_verdict.h"

// What `trireme train` refuses before it starts a rank, and `trireme config check` says beforehand.
namespace trireme {

/// What is wrong with how the ranks are to divide the work, a sentence each; empty where a start
/// would be tried. `trireme summary` refuses it by the same words. Throws the first of them that is
/// of the numbers alone: degrees, shards and batches that do not come out.
std::vector<std::string> refused_layout(const Config& config, int ranks,
                                        bool built_in_model = true);
/// The first of them as UsageError.
TRIREME_API void check_layout(const Config& config, int ranks, bool built_in_model = true);

/// Of the layout and of the data, a sentence for each; empty where a start would be tried. Of a
/// configuration that is right by itself, on `ranks` ranks whose batches come out. Without
/// `built_in_model` the program brings its model and its data, and nothing is said of model.* and
/// data.*.
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
