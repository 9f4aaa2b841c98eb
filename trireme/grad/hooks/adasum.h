// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

// The pairwise rule of Adasum. Pure.
namespace trireme {

struct AdasumFactors {
  double a = 1, b = 1;
};

/// Adasum(a, b) = (1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b: the sum of gradients at right angles,
/// the mean of equal ones. From the three products; a gradient of zeros leaves the other alone.
/// Source: Maleki et al., Scaling Distributed Training with Adaptive Summation, 2020.
inline AdasumFactors adasum_factors(double ab, double aa, double bb) {
  // What is not finite is to stay so: 0 × NaN.
  return {aa == 0 ? 1 : 1 - ab / (2 * aa), bb == 0 ? 1 : 1 - ab / (2 * bb)};
}

}  // namespace trireme
