// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// The two passes of Adasum over a parameter's elements in two rows of gradients, float32 or
// float64: the CPU's loops (adasum_kernels.cc), and LibTorch's operators for any device
// (adasum_aten.cc), which add the products in another order and never wait.
namespace trireme::adasum {

struct Pair {
  const at::Tensor& rows;  // flat
  int64_t a, b, n;         // elements [a, a + n) and [b, b + n) of it
  const at::Tensor& products;
  int64_t at;  // three float64 of it: a·b, a·a, b·b
};

/// Adds to the three products.
void add_products(const Pair& pair);
/// a = the pairwise rule of a and b (adasum.h), by the products.
void combine(const Pair& pair);

namespace kernels {
void add_products(const Pair& pair);
void combine(const Pair& pair);
}  // namespace kernels
namespace aten {
void add_products(const Pair& pair);
void combine(const Pair& pair);
}  // namespace aten

}  // namespace trireme::adasum
