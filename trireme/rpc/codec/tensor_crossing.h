// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/export.h"
#include "trireme/rpc/transit.h"

namespace trireme::rpc::detail {

/// A crossing that is told of the tensors of its call, in the order in which they are written and
/// read.
class TRIREME_API TensorCrossing : public Crossing {
 public:
  ~TensorCrossing() override;
  /// One that requires a gradient is written: the other end will make it require one, too.
  virtual void leaves(const at::Tensor& tensor) = 0;
  /// One that required a gradient at the other end has been read.
  virtual void comes(at::Tensor& tensor) = 0;
};

}  // namespace trireme::rpc::detail
