// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/gradient_place.h"

namespace trireme {

/// One round of gradients, as whoever drives backward sees it: open(), ready(i) for each
/// contribution to parameter i's gradient, close(). The Reducer is one; decorators add what some
/// models need (GradientTree's leaves, StaticGraph, SparseGradients) and pass the rest on.
class TRIREME_API GradientRound {
 public:
  virtual ~GradientRound() = default;
  virtual size_t size() const = 0;
  virtual const at::Tensor& parameter(size_t i) const = 0;
  virtual const std::string& name(size_t i) const = 0;
  virtual void open() = 0;
  virtual bool is_open() const = 0;
  /// Where parameter i's next contribution may be written, if its gradient lives in memory of this
  /// round's: once in a round, before its first ready(i), open or not yet.
  virtual GradientPlace offer(size_t /*i*/) { return {}; }
  /// One contribution is complete and lies in p.grad(). Never waits.
  virtual void ready(size_t i) = 0;
  /// A contribution to p.grad() comes outside of a round (no_sync): this rank has used the
  /// parameter when the next round closes, whether or not that round's backward comes to it.
  virtual void accumulated_outside(size_t i) = 0;
  /// Returns when every gradient is reduced.
  virtual void close() = 0;
  /// Forgets a round that an exception broke off.
  virtual void reset() = 0;
};

}  // namespace trireme
