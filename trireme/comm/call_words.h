// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/dtypes.h"
#include "trireme/comm/flight/recorder.h"
#include "trireme/comm/group.h"

namespace trireme::detail {

/// The recorder's word for a dtype; bool is uint8, what it does not know is uint8 too.
inline flight::DType word_of(at::ScalarType type) {
  return dtype_of(type).value_or(flight::DType::u8);
}

/// What a call of a Backend says.
inline flight::CallWords words_of(flight::OpKind op, const at::Tensor& tensor, int root = 0,
                                  ReduceOp red = ReduceOp::sum, int tag = 0) {
  return {.op = op,
          .dtype = word_of(tensor.scalar_type()),
          .red = static_cast<flight::RedOp>(red),
          .root = root,
          .tag = tag,
          .count = static_cast<uint64_t>(tensor.numel())};
}

}  // namespace trireme::detail
