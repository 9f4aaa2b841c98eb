// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/slice.h"

namespace trireme {

/// "" if the slices of a tensor of this shape are disjoint and together all of it, else what is
/// wrong: "elements 3 to 5 are in two parts", "12 of 40 elements are in no part". Each slice must
/// be one that fault_of() passes. Linear in their number, times 2^dims.
TRIREME_API std::string fault_in_tiling(const std::vector<int64_t>& shape,
                                        const std::vector<const Slice*>& slices);

}  // namespace trireme
