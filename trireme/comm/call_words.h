// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/call.h"
#include "trireme/comm/dtypes.h"
#include "trireme/comm/flight/recorder.h"

namespace trireme::detail {

/// Describes a call for the recorder and for other ranks. bool, and any dtype that the recorder
/// does not know, is reported as uint8.
inline flight::CallWords words_of(const Call& call) {
  flight::CallWords words{
      .op = call.named(), .red = call.reduction, .root = call.root, .tag = call.tag};
  if (const at::Tensor* t = call.counted()) {
    words.dtype = dtype_of(t->scalar_type()).value_or(flight::DType::u8);
    words.count = static_cast<uint64_t>(t->numel());
  }
  return words;
}

}  // namespace trireme::detail
