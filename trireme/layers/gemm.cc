// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/gemm.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>

#include <type_traits>

namespace trireme::detail {
namespace {

// Fortran BLAS, column-major. Sizes are handed over as 64-bit integers by reference: a BLAS with
// 32-bit integers reads their lower halves (little-endian), one with 64-bit integers all of them.
template <class T>
using BlasGemm = void (*)(const char*, const char*, const int64_t*, const int64_t*, const int64_t*,
                          const T*, const T*, const int64_t*, const T*, const int64_t*, const T*,
                          T*, const int64_t*);

template <class T>
BlasGemm<T> find_blas() {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  return reinterpret_cast<BlasGemm<T>>(
      ::dlsym(RTLD_DEFAULT, std::is_same_v<T, float> ? "sgemm_" : "dgemm_"));
#else
  return nullptr;
#endif
}

template <class T>
at::Tensor view(const T* p, bool transpose, int64_t rows, int64_t columns, int64_t ld) {
  const auto type = std::is_same_v<T, float> ? at::kFloat : at::kDouble;
  auto strides = transpose ? std::vector<int64_t>{1, ld} : std::vector<int64_t>{ld, 1};
  return at::from_blob(const_cast<T*>(p), {rows, columns}, strides, at::dtype(type));
}

}  // namespace

template <class T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  static const BlasGemm<T> blas = find_blas<T>();
  if (blas) {  // row-major C = A·B is column-major Cᵀ = Bᵀ·Aᵀ
    blas(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &n, &m, &k, &alpha, b, &ldb, a, &lda,
         &beta, c, &ldc);
    return;
  }
  at::NoGradGuard no_grad;
  auto out = view(c, false, m, n, ldc);
  at::addmm_out(out, out, view(a, transpose_a, m, k, lda), view(b, transpose_b, k, n, ldb), beta,
                alpha);
}

template void gemm<float>(bool, bool, int64_t, int64_t, int64_t, float, const float*, int64_t,
                          const float*, int64_t, float, float*, int64_t);
template void gemm<double>(bool, bool, int64_t, int64_t, int64_t, double, const double*, int64_t,
                           const double*, int64_t, double, double*, int64_t);

}  // namespace trireme::detail
