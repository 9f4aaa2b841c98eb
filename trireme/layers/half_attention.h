// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// Causal attention of bfloat16 tensors on the CPU. Its products are small, so whether the
// processor's bfloat16 instructions (AVX512-BF16, AMX) help is measured for attention as a whole:
// widening once and computing in float32 may still be faster (layers/causal_attention.h).
namespace trireme {

enum class HalfAttention : uint8_t {
  widened,  // computed in float32
  native    // products of bfloat16 with float32 sums; softmax and what is added up in float32
};

/// As causal_attention(), by LibTorch's bfloat16 products: tiles of rows that leave out the
/// invisible half, and one number a row is kept for backward. qkv: bfloat16, on the CPU. Scores and
/// probabilities are rounded to bfloat16 where they are factors; the gradients of keys and values
/// are added up in float32. Can be differentiated once.
TRIREME_API at::Tensor causal_attention_half(const at::Tensor& qkv, int64_t heads,
                                             const at::Tensor& starts = {});

/// Forward and backward a second, either way.
struct AttentionRates {
  double widened = 0, native = 0;
  bool float32_sums = true;  // of LibTorch's batched bfloat16 products
  double ratio() const { return widened > 0 ? native / widened : 0; }
};
/// Takes 256 positions, 4 heads of 64, for `seconds` each way after a first call, on as many
/// threads as LibTorch now has.
TRIREME_API AttentionRates measure_attention_rates(double seconds);
/// The faster way whose sums are float32.
TRIREME_API HalfAttention faster_attention(const AttentionRates& rates);
/// "bfloat16 attention at 1.4 × float32's".
TRIREME_API std::string describe(const AttentionRates& rates);

/// A module that attends, by its own choice of the two. Widened unless set.
class TRIREME_API AttendsHalf {
 public:
  virtual ~AttendsHalf();
  void set_half_attention(HalfAttention way) { way_ = way; }
  HalfAttention half_attention() const { return way_; }

 protected:
  /// causal_attention(); of bfloat16 on the CPU as it was chosen.
  at::Tensor attend(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts) const;

 private:
  HalfAttention way_ = HalfAttention::widened;
};

/// Sets it for every such module in `root`, itself included. Returns how many there are.
TRIREME_API int set_half_attention(torch::nn::Module& root, HalfAttention way);

}  // namespace trireme
