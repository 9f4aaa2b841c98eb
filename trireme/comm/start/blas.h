// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme {

/// OpenBLAS before 0.3.25 does not know newer Intel cores and falls back to kernels of 2004, five
/// times slower. If that happened and no core type was set, selects the right one; call it before
/// the first BLAS call. It acts once per process.
void mend_blas();

}  // namespace trireme
