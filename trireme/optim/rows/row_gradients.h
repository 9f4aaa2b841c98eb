// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// Gradients of some rows of a table, such as those that the lookups of a batch touched.
struct RowGradients {
  at::Tensor rows;       // [n] int64: numbers of rows, from 0
  at::Tensor gradients;  // [n, …]: gradients[i] is of the row rows[i]
};

/// All parts as one list that names each row once, in ascending order, as RowOptimizer takes it.
///
/// Gradients of one row are added. Their order is that of their bits, and the sum is taken in
/// float64 and rounded once: so it depends on which gradients there are, and on neither their order
/// nor their parts. A part whose own duplicates were added before is other gradients. float16 and
/// bfloat16 become float32, exactly.
///
/// Made on the CPU: what is on another device is copied there, which waits for the device, and the
/// result goes to the device of the first part's gradients. It is new memory. UsageError, with the
/// part's number, for rows that are not int64 or negative, gradients that are not floating-point or
/// not as many as rows, and parts whose rows have different shapes or dtypes, and for no parts.
TRIREME_API RowGradients merge_rows(const std::vector<RowGradients>& parts);

}  // namespace trireme
