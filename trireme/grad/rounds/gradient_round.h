// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/gradient_place.h"

namespace trireme {

/// One round of gradients, as the code that drives backward sees it: open(), ready(i) for each
/// contribution to parameter i's gradient, close(). The Reducer is one; decorators add what some
/// models need (GradientTree's leaves, StaticGraph, SparseGradients) and forward the rest.
class TRIREME_API GradientRound {
 public:
  virtual ~GradientRound() = default;
  virtual size_t size() const = 0;
  virtual const at::Tensor& parameter(size_t i) const = 0;
  virtual const std::string& name(size_t i) const = 0;
  virtual void open() = 0;
  virtual bool is_open() const = 0;
  /// Where parameter i's next contribution may be written, if its gradient lives in memory of the
  /// round: once per round, before its first ready(i), whether or not the round is open yet.
  virtual GradientPlace offer(size_t /*i*/) { return {}; }
  /// One contribution is complete in p.grad(). Never waits.
  virtual void ready(size_t i) = 0;
  /// A contribution to p.grad() was made outside a round (no_sync): when the next round closes,
  /// this rank has used the parameter, even if that round's backward does not reach it.
  virtual void accumulated_outside(size_t i) = 0;
  /// Returns when every gradient is reduced.
  virtual void close() = 0;
  /// Discards a round that was interrupted by an exception.
  virtual void reset() = 0;
};

}  // namespace trireme
