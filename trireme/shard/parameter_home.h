// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizer.h"

namespace trireme {

/// Where an optimizer's parameters are while it does not step: their bytes need not be in memory
/// then (ZeRO-3 with parameters in a file). Ranges are indices of the optimizer's parameters.
class TRIREME_API ParameterHome {
 public:
  virtual ~ParameterHome();
  /// They will be held soon. Does not wait.
  virtual void prefetch(size_t first, size_t count) = 0;
  /// In memory from here on. Holds nest.
  virtual void hold(size_t first, size_t count) = 0;
  /// `changed`: what is in memory is kept; false: it is as it was.
  virtual void let_go(size_t first, size_t count, bool changed) = 0;
};

/// body(), then after(), whatever body throws; its error goes first.
template <class Body, class After>
void and_after(Body&& body, After&& after) {
  try {
    body();
  } catch (...) {
    try {
      after();
    } catch (...) {  // the first error says more
    }
    throw;
  }
  after();
}

/// body() while the home holds these parameters. A null home: they are in memory anyway.
template <class Body>
void while_held(ParameterHome* home, size_t first, size_t count, bool changes, Body&& body) {
  if (!home) return body();
  home->hold(first, count);
  and_after(body, [&] { home->let_go(first, count, changes); });
}

/// What `make` makes, which is made and steps while the home holds all of `parameters`: memory for
/// them is needed during a step. (An OffloadedOptimizer needs it for a sub-group.)
TRIREME_API std::unique_ptr<Optimizer> held_optimizer(NamedTensors parameters,
                                                      const MakeOptimizer& make,
                                                      std::shared_ptr<ParameterHome> home);

}  // namespace trireme
