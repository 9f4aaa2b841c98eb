// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/base/export.h"

// Which steps of a run folder stay. Pure: lists in, lists out.
namespace trireme {

/// A step that stays for one of these reasons stays.
struct RetentionRule {
  int64_t keep = 2;   // so many of the newest
  int64_t best = 0;   // so many with the lowest held-out loss
  int64_t every = 0;  // those whose number is a multiple of it; 0: none
};

struct SavedStep {
  int64_t step = 0;
  std::optional<double> loss{};  // held out; nothing: it was not evaluated
  bool named = false;            // by a link for whose sake it stays (step_links.h)
};

/// What goes now that `current` is saved, rising. Never `current` itself, and no later step: those
/// are of a run that this one has branched off. Of equal losses the newer step is the better one. A
/// loss that is not a number counts as none.
TRIREME_API std::vector<int64_t> steps_to_delete(const std::vector<SavedStep>& steps,
                                                 int64_t current, const RetentionRule& rule);

/// Of the steps up to `current`, the one with the lowest held-out loss, the newest of equal ones;
/// nothing if none has one.
TRIREME_API std::optional<int64_t> best_step(const std::vector<SavedStep>& steps, int64_t current);

/// Whether a step with this loss, newer than all of `steps`, would be one of the `best` ones.
TRIREME_API bool is_among_best(const std::vector<SavedStep>& steps, double loss, int64_t best);

}  // namespace trireme
