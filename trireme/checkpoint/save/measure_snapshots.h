// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// Bytes of the two buffers that an AsyncSaver of this group keeps on this rank for what the walks
/// show: makes both, copies the state into one, and lets go of them. Every rank calls it; nothing
/// is written. Errors, on all ranks: UsageError for what cannot be saved, ResourceError where the
/// memory is not there.
TRIREME_API int64_t measure_snapshots(const StateWalk& walk, Group group);

}  // namespace trireme
