// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// Products of bfloat16 matrices on the CPU. Where the processor multiplies bfloat16 (AVX512-BF16,
// AMX), LibTorch's are two to three times as fast as float32's; elsewhere they may take a hundred
// times as long, and it is faster to widen both factors. Sums are float32 either way: where
// LibTorch rounds each partial sum to bfloat16 (its own loops, which it uses on CPUs without
// AVX-512), factors are widened whatever is faster.
namespace trireme {

enum class HalfProducts : uint8_t {
  native,  // LibTorch's bfloat16 products
  widened  // factors are widened to float32, multiplied, and the product is rounded
};

/// In GFLOP/s.
struct ProductRates {
  double float32 = 0, bfloat16 = 0;
  bool float32_sums = true;  // of LibTorch's bfloat16 products; matrices up to 256 do not tell
  double ratio() const { return float32 > 0 ? bfloat16 / float32 : 0; }
};
/// Multiplies square matrices of this size for `seconds` per type, on as many threads as LibTorch
/// now has, after a first call in which it may compile its kernel.
TRIREME_API ProductRates measure_product_rates(int64_t size, double seconds);
/// The faster way whose sums are float32.
TRIREME_API HalfProducts faster_products(const ProductRates& rates);
/// "bfloat16 products run at 2.2 × float32's rate on this CPU".
TRIREME_API std::string describe(const ProductRates& rates);

/// A module that multiplies, by its own choice of the two. Native unless set.
class TRIREME_API MultipliesHalf {
 public:
  virtual ~MultipliesHalf();
  void set_half_products(HalfProducts products) { products_ = products; }
  HalfProducts half_products() const { return products_; }

 protected:
  /// x · weightᵀ + bias, for rows x […, in], weight [out, in], bias [out] or undefined.
  at::Tensor linear_rows(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias = {}) const;

 private:
  HalfProducts products_ = HalfProducts::native;
};

/// Sets it for every such module in `root`, itself included. Returns how many there are.
TRIREME_API int set_half_products(torch::nn::Module& root, HalfProducts products);

}  // namespace trireme
