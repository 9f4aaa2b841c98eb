// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"

namespace trireme::launch {

/// The OpenBLAS that workers of this environment would load, asked in a child process (its
/// constructor starts threads and reads the environment, and must do neither here). About 30 ms;
/// all empty when there is none.
struct BlasProbe {
  std::string library;   // "libopenblas.so.0" or "libblas.so.3"
  std::string corename;  // openblas_get_corename()
  std::string config;    // openblas_get_config()
  double gflops = 0;     // of sgemm on one thread; 0: not measured, or it crashed
};

struct BlasQuestion {
  std::optional<std::string> coretype;  // OPENBLAS_CORETYPE; "": unset; nullopt: as it is
  bool measure = false;                 // half a second more
};
TRIREME_API BlasProbe probe_openblas(const BlasQuestion& question = {});

/// What the child wrote: a line each of library, corename, config and rate, as far as it came.
TRIREME_API BlasProbe parse_blas_answer(const std::string& text);

}  // namespace trireme::launch
