// SPDX-License-Identifier: Apache-2.0
#pragma once

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
};
TRIREME_API BlasProbe probe_openblas();

}  // namespace trireme::launch
