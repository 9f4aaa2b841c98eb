// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/models/model.h"
#include "trireme/train/precision/precision.h"

namespace trireme {

/// Checks training.reproducible. Throws UsageError on every rank for what does not fit the tree of
/// sums (design §3): a number of leaves or ranks that is not a power of two, a backend that adds in
/// an order of its own, half-precision buckets, running statistics, and modules that draw from
/// LibTorch's generator.
TRIREME_API void check_reproducible(const Group& group, int64_t leaves, const PrecisionPlan& plan,
                                    const Model& model);

}  // namespace trireme
