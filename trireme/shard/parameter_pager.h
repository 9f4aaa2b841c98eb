// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizer.h"

namespace trireme {

/// Keeps an optimizer's parameters, which need not be in memory while it is not stepping (ZeRO-3
/// with parameters in a file). Ranges are indices of the optimizer's parameters.
class TRIREME_API ParameterPager {
 public:
  virtual ~ParameterPager();
  /// Announces that these parameters will be held soon. Does not wait.
  virtual void prefetch(size_t first, size_t count) = 0;
  /// Reads them into memory and keeps them there. Holds nest.
  virtual void hold(size_t first, size_t count) = 0;
  /// Ends a hold. `changed`: true if the values in memory must be saved; false if they are
  /// unchanged.
  virtual void release(size_t first, size_t count, bool changed) = 0;
};

namespace detail {
/// Calls body(), then cleanup() even if body throws; if both throw, body's exception is rethrown.
template <class Body, class Cleanup>
void with_finally(Body&& body, Cleanup&& cleanup) {
  try {
    body();
  } catch (...) {
    try {
      cleanup();
    } catch (...) {  // the first error is more informative
    }
    throw;
  }
  cleanup();
}
}  // namespace detail

/// Calls body() while the pager holds these parameters. A null pager means that they are always in
/// memory.
template <class Body>
void while_held(ParameterPager* pager, size_t first, size_t count, bool changes, Body&& body) {
  if (!pager) return body();
  pager->hold(first, count);
  detail::with_finally(body, [&] { pager->release(first, count, changes); });
}

/// Wraps the optimizer that `make` returns: the pager holds all of `parameters` during its
/// construction and its steps, so a step needs memory for all of them. (An OffloadedOptimizer needs
/// it only for a sub-group.)
TRIREME_API std::unique_ptr<Optimizer> paged_optimizer(NamedTensors parameters,
                                                       const MakeOptimizer& make,
                                                       std::shared_ptr<ParameterPager> pager);

}  // namespace trireme
