// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/group.h"
#include "trireme/tensor/parameter_table.h"

// What averaging of weights refuses.
namespace trireme {

/// UsageError for what cannot be averaged in place.
void check_averaged(const NamedTensors& parameters);
/// Before a mean: ranks tell each other whether theirs are finite, in one call of 8 bytes a rank.
/// NumericError on all of them, naming the first rank and parameter that is not.
void refuse_not_finite(Group& group, const NamedTensors& tensors);

}  // namespace trireme
