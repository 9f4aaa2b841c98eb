// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

// How far a layer may move: the pure part of LARS and LAMB. Norms are of one whole parameter,
// however many pieces they were added from.
namespace trireme {

/// LARS (You, Gitman, Ginsburg 2017): trust_coefficient ‖w‖ / (‖g‖ + weight_decay ‖w‖ + eps); 1
/// where a norm is 0, so that a layer of zeros can leave it.
inline double lars_ratio(double w, double g, double weight_decay, double trust_coefficient,
                         double eps) {
  if (w == 0 || g == 0) return 1;
  return trust_coefficient * w / (g + weight_decay * w + eps);
}

/// LAMB (You et al. 2019): ‖w‖ / ‖u‖ between low and high; 1 where a norm is 0.
inline double lamb_ratio(double w, double u, double low, double high) {
  if (w == 0 || u == 0) return 1;
  return std::clamp(w / u, low, high);
}

}  // namespace trireme
