// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme {

/// OpenBLAS before 0.3.25 does not know newer Intel cores and falls back to a kernel set of 2004,
/// five times slower. Where that happened and nobody chose a core type, picks the right one again;
/// must come before the first BLAS call. Once a process.
void mend_blas();

}  // namespace trireme
