// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/step_reader.h"

namespace trireme {

struct TensorComparison {
  int64_t differing = 0;  // elements whose bytes differ
  /// The largest |a - b|; NaN where a number meets a NaN, or a NaN another.
  double largest = 0;
  bool within = true;          // no |a - b| is larger than the tolerance
  std::vector<int64_t> first;  // index of the first element that is not within it; none: of the
                               // first one that differs
};

/// Can two tensors of these shapes be compared element by element? They are equal, or version 2 has
/// lost one of them.
TRIREME_API bool shapes_fit(const CheckpointIndex& a, const std::vector<int64_t>& shape_a,
                            const CheckpointIndex& b, const std::vector<int64_t>& shape_b);

/// Whole tensors, whatever parts they lie in, a window of 4 MiB at a time. Both steps have the name
/// with one dtype, and shapes that fit.
TRIREME_API TensorComparison compare_tensors(StepReader& a, StepReader& b, const std::string& name,
                                             double tolerance);

}  // namespace trireme
