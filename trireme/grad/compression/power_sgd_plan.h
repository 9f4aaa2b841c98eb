// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Which matrices PowerSGD compresses. Pure: the memory plan asks too.
namespace trireme {

/// Its factors, `rank` columns of rows + cols numbers, are smaller than the matrix by more than
/// `min_compression_rate`: as torch's hook has it.
constexpr bool power_sgd_compresses(int64_t rows, int64_t cols, int64_t rank,
                                    double min_compression_rate) {
  return static_cast<double>((rows + cols) * rank) * min_compression_rate <
         static_cast<double>(rows * cols);
}

}  // namespace trireme
