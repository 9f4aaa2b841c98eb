// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/layers/context_parallel/context_parallel.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

namespace trireme {

/// Positions of a row whose ranks are those of two axes: context parallelism divides the row, and
/// with sequence_parallel the tensor-parallel ranks divide that part.
struct RowExtent {
  int64_t time = 0;  // of all ranks
  int64_t own = 0;   // of the tensor-parallel ranks of this context-parallel rank together
};

/// x: this rank's positions in dim 1. `sequence`: the positions of all ranks; 0: as many on each.
inline RowExtent row_extent(const at::Tensor& x, int64_t sequence, const TensorParallel& tp,
                            const ContextParallel& cp) {
  const int64_t here = x.size(1) * (tp.sequence_parallel() ? tp.size() : 1);
  if (sequence == 0) return {here * cp.size(), here};
  return {sequence, cp.size() == 1 ? sequence : cp.length(sequence)};
}

}  // namespace trireme
