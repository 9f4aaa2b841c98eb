// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/half_cast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace half_cast_test {

using namespace trireme;

TEST(tensor_half_cast, gives_libtorchs_bits_for_every_bit_pattern) {
  // All upper halves with lower halves around every rounding decision, and odd lengths.
  at::Tensor wide = at::empty({65536 * 6 + 5}, at::kFloat);
  auto* bits = static_cast<uint32_t*>(wide.data_ptr());
  const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (int64_t i = 0; i < wide.numel(); ++i)
    bits[i] = (static_cast<uint32_t>(i / 6 % 65536) << 16) | low[i % 6];
  at::Tensor ours = at::empty({wide.numel()}, at::kBFloat16);
  round_to_bfloat16(wide.data_ptr<float>(), static_cast<uint16_t*>(ours.data_ptr()), wide.numel());
  const at::Tensor theirs = wide.to(at::kBFloat16);
  const auto *a = static_cast<const uint16_t*>(ours.data_ptr()),
             *b = static_cast<const uint16_t*>(theirs.data_ptr());
  const auto nan = [](uint16_t v) { return (v & 0x7fff) > 0x7f80; };
  int64_t others = 0, nans = 0;
  for (int64_t i = 0; i < ours.numel(); ++i) {
    // LibTorch writes one NaN from vectors and another from what is left over.
    if (std::isnan(wide.data_ptr<float>()[i]))
      others += !nan(a[i]) || !nan(b[i]), ++nans;
    else
      others += a[i] != b[i];
  }
  EXPECT_EQ(others, 0);
  EXPECT_GT(nans, 1000);
  at::Tensor back = at::empty({wide.numel()});
  widen_bfloat16(static_cast<const uint16_t*>(ours.data_ptr()), back.data_ptr<float>(),
                 back.numel());
  EXPECT_EQ(std::memcmp(back.data_ptr(), ours.to(at::kFloat).data_ptr(), back.nbytes()), 0);
}

}  // namespace half_cast_test
