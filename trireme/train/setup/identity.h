// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// Returns what must be equal for two runs to end with the same bits on any number of ranks: leaf
/// shape and count, LibTorch, BLAS kernels and threads, vector instructions, and the kind of device
/// if it is not the CPU; and over how many ranks layers are divided. One line of "name=value"
/// parts.
TRIREME_API std::string run_identity(int64_t leaf_size, int64_t leaves,
                                     at::Device device = at::kCPU, int tp = 1);

/// The number of CPUs that a rank of `ranks` on this host may use besides the one it computes on.
TRIREME_API int spare_cpus(int ranks);

}  // namespace trireme
