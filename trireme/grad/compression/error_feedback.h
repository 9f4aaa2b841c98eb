// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/compression/codec.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// The part of each parameter's gradients that has not been sent yet; it is added to the next
/// gradient, so that everything is sent eventually. Each rank holds its own, one float32 per
/// element, in the units of the gradients that the hook receives. Stored by parameter, so that the
/// bucket layout may change. In host memory, or on a device, where the functions that take tensors
/// work in the order of the current stream.
///
/// Source: Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et al.,
/// "Error Feedback Fixes SignSGD", ICML 2019: if a codec leaves at most (1−δ) of its input's energy
/// unsent, the energy of the error feedback stays below 4(1−δ)/δ² times that of the largest
/// gradient.
class TRIREME_API ErrorFeedback {
 public:
  /// The parameters of the reducer, in its order. `where` it is kept.
  ErrorFeedback(const NamedTensors& parameters, const Group& group, at::Device where = at::kCPU);

  /// Adds the error feedback of parameter p to x. Returns the largest |x| (not finite if any is
  /// not); NumericError, naming the parameter and the rank, if the error feedback is not finite.
  float add_to(size_t p, float* x);
  /// Stores error[0 … n) as the error feedback of p's elements from `offset` on.
  void keep(size_t p, int64_t offset, int64_t n, const float* error);
  /// The same on a device, of the parts of a bucket: x += the error feedback; error becomes it.
  void add_to(const std::vector<CodecPart>& parts, const at::Tensor& x);
  void keep(const std::vector<CodecPart>& parts, const at::Tensor& error);
  /// NumericError as add_to()'s, if that of one of the parts is not finite. Blocks.
  void check_finite(const std::vector<CodecPart>& parts) const;
  /// Multiplies everything by `factor`, for gradients that come in new units (another loss scale).
  void scale(double factor);
  /// The error feedback of parameter p, flat.
  at::Tensor of(size_t p) const;
  /// Tensors "hook.error.<parameter>", of which each rank shows its slice.
  void state(StateVisitor& visitor);

 private:
  [[noreturn]] void refuse(size_t p) const;
  struct Place {
    std::string name;
    int64_t offset, numel;
  };
  std::vector<Place> places_;
  int rank_, ranks_;
  at::Tensor flat_;
};

}  // namespace trireme
