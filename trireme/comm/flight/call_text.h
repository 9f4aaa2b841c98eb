// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/flight/words.h"

namespace trireme::flight {

/// Returns "all_reduce(float32[10], sum)", "send(int64[3], to rank 2)", "barrier" and so on.
TRIREME_API std::string call_text(Collective op, DType dtype, ReduceOp red, int root,
                                  uint64_t count);

}  // namespace trireme::flight
