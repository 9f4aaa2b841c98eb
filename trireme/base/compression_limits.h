// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The bounds of compression's numbers, for the table of keys and for who checks them on a rank.
namespace trireme::compression_limits {

inline constexpr int64_t kLeastBlock = 8, kMostBlock = 65536;
inline constexpr double kLeastDensity = 1e-6, kMostDensity = 1;
inline constexpr int64_t kMostRank = 64;
inline constexpr double kLeastResidual = 1e-6, kMostResidual = 0.99;
inline constexpr int64_t kLeastDecideEvery = 10;

}  // namespace trireme::compression_limits
