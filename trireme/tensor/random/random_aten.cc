// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random_aten.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/random/random_kernels.h"

namespace trireme::detail {
namespace {

constexpr int64_t kLower = 0xFFFFFFFF;

// Philox4x32-10 in int64: a product's lower 64 bits are the same, signed or not, and a shift's
// copies of the sign are masked off. key0, key1: [rows, 1]; words: [rows, blocks].
std::array<at::Tensor, 4> philox(at::Tensor key0, at::Tensor key1, int64_t blocks) {
  const at::Tensor index = at::arange(blocks, key0.options());
  at::Tensor c0 = index.bitwise_and(kLower), c1 = index.__rshift__(32);
  at::Tensor c2 = at::zeros_like(index), c3 = c2;
  for (int round = 0; round < 10; ++round) {
    const at::Tensor p0 = c0.mul(int64_t{0xD2511F53}), p1 = c2.mul(int64_t{0xCD9E8D57});
    c0 = p1.__rshift__(32).bitwise_xor(c1).bitwise_xor(key0).bitwise_and_(kLower);
    c2 = p0.__rshift__(32).bitwise_xor(c3).bitwise_xor(key1).bitwise_and_(kLower);
    c1 = p1;  // its upper half is rubbish until it has been masked
    c3 = p0;
    key0 = key0.add(int64_t{0x9E3779B9});
    key1 = key1.add(int64_t{0xBB67AE85});
  }
  return {c0, c1, c2, c3};
}

// The numbers of 16 bits of two words, low half first, [rows, groups, 4 × blocks]: below the
// threshold?
at::Tensor below(const at::Tensor& first, const at::Tensor& second, int64_t threshold) {
  std::vector<at::Tensor> four;
  for (const at::Tensor& word : {first, second})
    for (const int shift : {0, 16})
      four.push_back(word.__rshift__(shift).bitwise_and_(0xFFFF).lt(threshold));
  return at::stack(four, -1).view({first.size(0), -1, 4 * kBlocksPerCall});
}

}  // namespace

at::Tensor dropout_mask(c10::ArrayRef<int64_t> row_keys, int64_t width, int64_t threshold,
                        at::Device device) {
  constexpr int64_t kGroup = kDropoutGroup;
  const auto rows = static_cast<int64_t>(row_keys.size());
  const int64_t groups = (width + kGroup - 1) / kGroup;
  const at::TensorOptions options = at::TensorOptions(at::kLong).device(device);
  if (rows == 0 || width == 0) return at::zeros({rows, width}, options.dtype(at::kBool));
  const at::Tensor here = host_buffer({rows, 1}, at::kLong, device);
  std::copy(row_keys.begin(), row_keys.end(), host_data<int64_t>(here));
  const at::Tensor keys = at::empty({rows, 1}, options);
  copy_in_stream_order(keys, here);
  const auto words = philox(keys.bitwise_and(kLower), keys.__rshift__(32).bitwise_and_(kLower),
                            groups * kBlocksPerCall);
  return at::stack({below(words[0], words[1], threshold), below(words[2], words[3], threshold)}, 2)
      .reshape({rows, groups * kGroup})
      .narrow(1, 0, width);
}

}  // namespace trireme::detail
