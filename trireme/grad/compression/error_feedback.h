// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// What was not sent of each parameter's gradients so far: added to what is to be sent, so that in
/// the long run everything is. One float32 per element, on each rank its own, in the units of the
/// gradients that the hook gets. By parameter, so that buckets may be laid out anew.
///
/// Source: Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et al.,
/// "Error Feedback Fixes SignSGD", ICML 2019: if a codec leaves at most (1−δ) of the energy of what
/// it is given, the memory's stays below 4(1−δ)/δ² of the largest gradient's.
class TRIREME_API ErrorFeedback {
 public:
  /// The parameters of the reducer, in its order.
  ErrorFeedback(const NamedTensors& parameters, const Group& group);

  /// x += what is kept of parameter p. Returns the largest |x| (not finite if one is not);
  /// NumericError, naming parameter and rank, where what is kept is not finite.
  float add_to(size_t p, float* x);
  /// Keeps error[0 … n) as what is left of p's elements from `offset` on.
  void keep(size_t p, int64_t offset, int64_t n, const float* error);
  /// Everything kept, times `factor`: where gradients come in new units (another loss scale).
  void scale(double factor);
  /// What is kept of parameter p, flat.
  at::Tensor of(size_t p) const;
  /// Tensors "hook.error.<parameter>", of which each rank shows its part.
  void state(StateVisitor& visitor);

 private:
  struct Place {
    std::string name;
    int64_t offset, numel;
  };
  std::vector<Place> places_;
  int rank_, ranks_;
  at::Tensor flat_;
};

}  // namespace trireme
