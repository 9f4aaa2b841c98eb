// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::detail {

/// Row-major C[m, n] = alpha · op(A) · op(B) + beta · C with rows lda, ldb, ldc elements apart, on
/// this thread's CPU: the BLAS that LibTorch has loaded, called without a tensor in between (a tile
/// of attention is worth microseconds). Where that BLAS cannot be reached, at::addmm on views of
/// the same memory.
template <class T>  // float, double
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc);

extern template void gemm<float>(bool, bool, int64_t, int64_t, int64_t, float, const float*,
                                 int64_t, const float*, int64_t, float, float*, int64_t);
extern template void gemm<double>(bool, bool, int64_t, int64_t, int64_t, double, const double*,
                                  int64_t, const double*, int64_t, double, double*, int64_t);

}  // namespace trireme::detail
