// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme::pipeline {

/// Adds ZeRO's actions to what is computed: a stage is gathered before its first use and dropped
/// after its last, and its gradients are added once, after its last weight gradient. `whole` stages
/// of a rank are gathered at a time (0: all, so that each stays whole for the step); with fewer,
/// the ones that the rank uses next are, and others are dropped and gathered anew. Reductions that
/// the table has stay where they are, and none are added on a rank that has some. Throws UsageError
/// where the table gathers or drops already, or `whole` is negative or less than what an overlapped
/// pair uses.
TRIREME_API Schedule place_units(const Schedule& schedule, int whole = 0);

}  // namespace trireme::pipeline
