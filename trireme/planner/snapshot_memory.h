// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/planner/exchange_memory.h"
#include "trireme/planner/memory.h"

// What checkpoint.async and checkpoint.snapshot_every keep on a rank: two copies of what it writes
// of a step. Pure.
namespace trireme {

/// Of a run of `exchange.ranks` ranks: they share in writing what they hold alike, to within a
/// megabyte, and so do those of a divided model (ParameterShape::savers); what lies in files is not
/// copied. Without a model's buffers.
TRIREME_API int64_t snapshot_bytes(const MemoryQuestion& question, const ExchangeShape& exchange);

}  // namespace trireme
