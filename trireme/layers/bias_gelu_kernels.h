// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The inner loops of bias and GELU on the CPU, in SIMD (float) or plain (double, which tests use).
namespace trireme::detail {

/// y = gelu(x + bias), the tanh form, for `rows` rows of `columns`.
template <class T>
void bias_gelu(const T* x, const T* bias, T* y, int64_t rows, int64_t columns);
/// dx = dy · gelu'(x + bias); dbias += sums of the columns of dx.
template <class T>
void bias_gelu_backward(const T* x, const T* bias, const T* dy, T* dx, T* dbias, int64_t rows,
                        int64_t columns);

}  // namespace trireme::detail
