// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// One pass over a range of parameters: read gradient and state, write state and parameter. Element
// i of the result depends on element i of the inputs alone, by the same IEEE operations in every
// SIMD target and in tails (no fused multiply-add), so neither position, length, alignment nor CPU
// changes a bit.
namespace trireme {

struct AdamWScalars {
  double grad_scale = 1;  // multiplied into the gradient first
  double l2 = 0;          // added to the gradient: l2 * p (Adam's weight decay; 0 under AdamW)
  double keep = 1;        // multiplied into the parameter: 1 - lr * weight_decay (AdamW)
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double step_size = 1e-3;  // lr / (1 - beta1^t)
  double root_scale = 1;    // 1 / sqrt(1 - beta2^t)
};

struct SgdScalars {
  double grad_scale = 1;
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0;
  bool nesterov = false;
};

/// p, m, v are read and written; none may overlap another. Float32 runs in SIMD, float64 in a plain
/// loop.
void adamw_pass(float* p, const float* g, float* m, float* v, int64_t n, const AdamWScalars& s);
void adamw_pass(double* p, const double* g, double* m, double* v, int64_t n, const AdamWScalars& s);

/// `m` may be null when momentum is 0. A zero buffer before the first step gives torch's first
/// step.
void sgd_pass(float* p, const float* g, float* m, int64_t n, const SgdScalars& s);
void sgd_pass(double* p, const double* g, double* m, int64_t n, const SgdScalars& s);

}  // namespace trireme
