// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// One pass over a range of parameters: read gradient and state, write state and parameter. Element
// i of the result depends on element i of the inputs alone, by the same IEEE operations in every
// SIMD target and in tails (no fused multiply-add), so neither position, length, alignment nor CPU
// changes a bit. T is float or double. What a pointer names is read and written unless it is const;
// none may overlap another; a null state is one that the scalars do not use.
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

struct AdaModScalars {
  double grad_scale = 1;
  double keep = 1;  // 1 - lr * weight_decay
  double beta1 = 0.9;
  double beta2 = 0.999;
  double beta3 = 0.999;
  double eps = 1e-8;
  double step_size = 1e-3;  // lr sqrt(1 - beta2^t) / (1 - beta1^t)
};

struct SgdScalars {
  double grad_scale = 1;
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0;  // 0: `m` is null
  bool nesterov = false;
  double gain = 1;  // of the gradient in `m`: 1 - dampening, but for the first step
};

struct LionScalars {
  double grad_scale = 1;
  double keep = 1;  // 1 - lr * weight_decay
  double beta1 = 0.9;
  double beta2 = 0.99;
  double lr = 1e-4;
};

struct RmspropScalars {
  double grad_scale = 1;
  double l2 = 0;
  double alpha = 0.99;
  double eps = 1e-8;
  double momentum = 0;    // 0: `buffer` is null
  bool centered = false;  // false: `mean` is null
  double lr = 1e-2;
};

struct AdagradScalars {
  double grad_scale = 1;
  double l2 = 0;
  double eps = 1e-10;
  double lr = 1e-2;
};

struct LarsScalars {
  double grad_scale = 1;
  double weight_decay = 0;
  double momentum = 0;  // 0: `buffer` is null
  double rate = 1e-2;   // lr * the parameter's trust ratio
};

struct LambScalars {
  double grad_scale = 1;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double moment_scale = 1;  // 1 / (1 - beta1^t)
  double root_scale = 1;    // 1 / sqrt(1 - beta2^t)
};

template <class T>
void adamw_pass(T* p, const T* g, T* m, T* v, int64_t n, const AdamWScalars& s);
/// `most`: the largest v so far, which divides in its place.
template <class T>
void amsgrad_pass(T* p, const T* g, T* m, T* v, T* most, int64_t n, const AdamWScalars& s);
/// `mean`: of the rates so far, by which they are bounded.
template <class T>
void adamod_pass(T* p, const T* g, T* m, T* v, T* mean, int64_t n, const AdaModScalars& s);
/// A zero buffer before the first step gives torch's first step.
template <class T>
void sgd_pass(T* p, const T* g, T* m, int64_t n, const SgdScalars& s);
template <class T>
void lion_pass(T* p, const T* g, T* m, int64_t n, const LionScalars& s);
template <class T>
void rmsprop_pass(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const RmspropScalars& s);
template <class T>
void adagrad_pass(T* p, const T* g, T* sum, int64_t n, const AdagradScalars& s);
template <class T>
void lars_pass(T* p, const T* g, T* buffer, int64_t n, const LarsScalars& s);

// LAMB in pieces: between the sums and the update stands whatever adds up a parameter's norms. The
// direction u = moment_scale m / (root_scale sqrt(v) + eps) + weight_decay p is a function of p, m
// and v, computed twice and stored nowhere.
template <class T>
void lamb_moments(const T* g, T* m, T* v, int64_t n, const LambScalars& s);
/// Squares of p and of u, added per block of norm_kernels.h: norm_blocks(n) values each.
template <class T>
void lamb_square_sums(const T* p, const T* m, const T* v, int64_t n, const LambScalars& s,
                      double* p_sums, double* u_sums);
/// p = p - step * u.
template <class T>
void lamb_update(T* p, const T* m, const T* v, int64_t n, const LambScalars& s, double step);

}  // namespace trireme
