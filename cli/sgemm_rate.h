// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme {

/// What one thread of the installed OpenBLAS reaches under one OPENBLAS_CORETYPE.
struct SgemmRate {
  std::string corename;  // what OpenBLAS then says it uses
  double gflops = 0;     // 0: no OpenBLAS, or the core type crashed here
};

/// The hidden verb flag that runs in the child: prints "CORENAME GFLOPS".
inline constexpr const char* kSgemmProbe = "--sgemm-probe";
int sgemm_probe();

/// Runs this program again as that child, because OpenBLAS reads its environment while it is
/// loaded. `coretype` "": the variable is unset.
SgemmRate measure_sgemm(const std::string& coretype);

}  // namespace trireme
