// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Numbers as their bits: what is not finite has the bits of `infinity`, or more, once the sign is
// off. With `to` (not null) they are copied there in the same pass.
namespace trireme {

bool finite_bits16(const int16_t* from, int16_t* to, size_t n, int16_t infinity);
bool finite_bits32(const int32_t* from, int32_t* to, size_t n);
bool finite_bits64(const int64_t* from, int64_t* to, size_t n);

}  // namespace trireme
