// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/dot.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "trireme/grad/hooks/adasum_pair.h"

namespace trireme::adasum {

namespace aten {
namespace {

at::Tensor row(const Pair& pair, int64_t from) { return pair.rows.narrow(0, from, pair.n); }
at::Tensor product(const Pair& pair, int64_t i) { return pair.products.narrow(0, pair.at + i, 1); }

// 1 − ab / 2xx, and 1 for a gradient of zeros.
at::Tensor factor(const at::Tensor& ab, const at::Tensor& xx) {
  return at::where(xx.eq(0), at::ones_like(xx), ab.div(xx.mul(2)).neg().add(1));
}

}  // namespace

void add_products(const Pair& pair) {
  const at::Tensor a = row(pair, pair.a).to(at::kDouble), b = row(pair, pair.b).to(at::kDouble);
  pair.products.narrow(0, pair.at, 3)
      .add_(at::stack({at::dot(a, b), at::dot(a, a), at::dot(b, b)}));
}

void combine(const Pair& pair) {
  const at::Tensor a = row(pair, pair.a), b = row(pair, pair.b);
  const at::Tensor of_a = factor(product(pair, 0), product(pair, 1)),
                   of_b = factor(product(pair, 0), product(pair, 2));
  a.copy_(of_a.mul(a.to(at::kDouble)).add_(of_b.mul(b.to(at::kDouble))));
}

}  // namespace aten

void add_products(const Pair& pair) {
  pair.rows.is_cpu() ? kernels::add_products(pair) : aten::add_products(pair);
}

void combine(const Pair& pair) {
  pair.rows.is_cpu() ? kernels::combine(pair) : aten::combine(pair);
}

}  // namespace trireme::adasum
