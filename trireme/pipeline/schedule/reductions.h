// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme::pipeline {

/// Adds the reductions of ZeRO stages 2 and 3, which add gradients over replicas after every
/// backward: 0REDUCE_GRAD3 after 0B3 or 0W3. It stands as late as it can, right before the rank's
/// next weight gradient, so that what comes in between computes while gradients are under way; the
/// last one ends the list. Takes the place of reductions of whole stages (place_units()). A table
/// that has reductions of micro-batches keeps its own.
TRIREME_API Schedule place_reductions(const Schedule& schedule);

}  // namespace trireme::pipeline
