// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// Orthonormal vectors out of any, in a fixed order of operations: the same bits on every machine.
namespace trireme {

/// Σ a[i] b[i]: products in float64, eight sums side by side, added in order.
inline double ordered_dot(const float* a, const float* b, int64_t n) {
  double sum[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t k = 0; k < 8; ++k)
      sum[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  for (; i < n; ++i) sum[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/// Modified Gram–Schmidt over `count` vectors of n elements behind each other, in place. Each is
/// divided by its norm + epsilon. One that the earlier ones make up (less than 1e-6 of it is left,
/// or it is zero) is given to `lost(i, vector)`, which may put another one there and return true,
/// or leave it to become zeros. Twice as many passes as the textbook: float32 loses orthogonality
/// in one.
template <class Lost>
void gram_schmidt(float* vectors, int64_t count, int64_t n, double epsilon, Lost lost) {
  const auto subtract_earlier = [&](int64_t i, float* v) {
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < i; ++j) {
        const float* u = vectors + j * n;
        const auto share = static_cast<float>(ordered_dot(u, v, n));
        if (share == 0) continue;
        for (int64_t e = 0; e < n; ++e) v[e] -= share * u[e];
      }
  };
  for (int64_t i = 0; i < count; ++i) {
    float* v = vectors + i * n;
    for (int attempt = 0;; ++attempt) {
      const double before = std::sqrt(ordered_dot(v, v, n));
      subtract_earlier(i, v);
      const double left = std::sqrt(ordered_dot(v, v, n));
      if (left > 1e-6 * before && left > 0) {
        const auto by = static_cast<float>(1 / (left + epsilon));
        // So small that its inverse overflows float32.
        if (std::isfinite(by)) {
          for (int64_t e = 0; e < n; ++e) v[e] *= by;
          break;
        }
      }
      if (attempt < 3 && lost(i, v)) continue;
      std::fill_n(v, n, 0.0f);
      break;
    }
  }
}

}  // namespace trireme
