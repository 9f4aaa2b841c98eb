// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <type_traits>

#include "trireme/grad/hooks/adasum.h"
#include "trireme/grad/hooks/adasum_pair.h"

namespace trireme::adasum::kernels {
namespace {

template <class F>
void with_type(const Pair& pair, const F& f) {
  double* products = pair.products.data_ptr<double>() + pair.at;
  const auto as = [&](auto* rows) { f(rows + pair.a, rows + pair.b, products); };
  pair.rows.scalar_type() == at::kFloat ? as(pair.rows.data_ptr<float>())
                                        : as(pair.rows.data_ptr<double>());
}

}  // namespace

void add_products(const Pair& pair) {
  with_type(pair, [&](const auto* a, const auto* b, double* out) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < pair.n; ++i) {
      const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      ab += x * y, aa += x * x, bb += y * y;
    }
    out[0] += ab, out[1] += aa, out[2] += bb;
  });
}

void combine(const Pair& pair) {
  with_type(pair, [&](auto* a, const auto* b, const double* p) {
    using T = std::remove_pointer_t<decltype(a)>;
    const AdasumFactors f = adasum_factors(p[0], p[1], p[2]);
    for (int64_t i = 0; i < pair.n; ++i)
      a[i] = static_cast<T>(f.a * static_cast<double>(a[i]) + f.b * static_cast<double>(b[i]));
  });
}

}  // namespace trireme::adasum::kernels
