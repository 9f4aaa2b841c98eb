// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>

#include "trireme/optim/optimizer.h"

// Inside optim: what one step does to one parameter.
namespace trireme {

struct Optimizer::Segment {
  size_t index;  // of the parameter in the table
  at::Tensor parameter;
  at::Tensor gradient;  // contiguous, same dtype, numel and device
  int64_t offset;       // of its state in the flat buffers
  int64_t numel;
};

/// pass(begin, end) over [0, numel), on LibTorch's threads where a rank has several. Elements are
/// independent.
template <class Pass>
void for_ranges(int64_t numel, const Pass& pass) {
  constexpr int64_t kGrain = 1 << 16;
  at::parallel_for(0, numel, kGrain, pass);
}

/// The parameter was written behind autograd's back: let saved tensors notice.
inline void bump_version(const at::Tensor& parameter) {
  if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace trireme
