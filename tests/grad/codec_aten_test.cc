// SPDX-License-Identifier: Apache-2.0
// What gradients on other devices than the CPU are encoded by; here on CPU memory against the
// CPU's loops, to the last bit.
#include "trireme/grad/compression/codec_aten.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "trireme/base/philox.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/compression/codec_wire.h"

namespace codec_aten_test {

using namespace trireme;
namespace k = trireme::codec_kernels;

namespace {

/// What rounds in special ways is among them: zeros of both signs, halves of a scale, numbers too
/// small for an inverse.
at::Tensor values(int64_t rows, int64_t n, uint64_t key) {
  at::Tensor t = at::empty({rows, n});
  float* x = t.data_ptr<float>();
  for (int64_t i = 0; i < rows * n; ++i) {
    const float u = uniform01(philox_block(key, 0, static_cast<uint64_t>(i))[0]);
    const float special[] = {0.0f, -0.0f, 1e-37f, -1e-37f, 127.0f,
                             0.5f, -1.5f, 2.5f,   3e38f,   -1e-30f};
    x[i] = i % 3 == 0 ? special[static_cast<size_t>(u * 10) % 10] : 4 * u - 2;
  }
  return t;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == b.numel() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

}  // namespace

TEST(grad_codec_aten, int8_has_the_bits_of_the_cpus_loops) {
  for (const int64_t rows : {1, 3})
    for (int64_t n = 1; n < 70; ++n)
      for (const int64_t block : {8, 24, 256})
        for (const float factor : {1.0f, 1.0f / 3}) {
          const at::Tensor x = values(rows, n, static_cast<uint64_t>(n));
          const int64_t blocks = (n + block - 1) / block;
          const at::Tensor scales = at::empty({rows, blocks}), want_scales = at::empty_like(scales),
                           q = at::empty({rows, n}, at::kChar), want_q = at::empty_like(q),
                           want = at::empty({rows, n});
          codec_aten::quantize(x, block, scales, q);
          for (int64_t r = 0; r < rows; ++r) {
            k::quantize(x[r].data_ptr<float>(), n, block, want_scales[r].data_ptr<float>(),
                        want_q[r].data_ptr<int8_t>());
            k::dequantize(want_q[r].data_ptr<int8_t>(), want_scales[r].data_ptr<float>(), block, 0,
                          n, factor, want[r].data_ptr<float>());
          }
          ASSERT_TRUE(same_bits(scales, want_scales)) << n << " in blocks of " << block;
          ASSERT_TRUE(same_bits(q, want_q)) << n << " in blocks of " << block;
          ASSERT_TRUE(
              same_bits(codec_aten::dequantize(q, scales, block, factor).contiguous(), want))
              << n << " in blocks of " << block;
        }
}

TEST(grad_codec_aten, signs_have_the_bits_of_the_cpus_loops) {
  for (int64_t n = 1; n < 70; ++n) {
    const at::Tensor x = values(1, n, 5).view({n}), want = at::empty({(n + 7) / 8}, at::kByte);
    k::pack_signs(x.data_ptr<float>(), n, want.data_ptr<uint8_t>());
    const at::Tensor bits = codec_aten::pack_signs(x);
    ASSERT_TRUE(same_bits(bits, want)) << n;
    at::Tensor unpacked = at::zeros({n});
    k::add_signs(want.data_ptr<uint8_t>(), n, 1, unpacked.data_ptr<float>());
    ASSERT_TRUE(same_bits(codec_aten::signs(bits, n), unpacked)) << n;
  }
}

TEST(grad_codec_aten, shares_cover_a_bucket_once_and_their_parts_do_not_overlap) {
  for (int64_t elements = 1; elements < 200; ++elements)
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      for (const int64_t block : {8, 32, 256}) {
        const codec_wire::Int8 wire(elements, ranks, block);
        int64_t at = 0;
        for (int64_t r = 0; r < ranks; ++r) {
          ASSERT_EQ(wire.begin_of(r), at);
          ASSERT_GE(wire.length_of(r), 0);
          ASSERT_LE(wire.length_of(r), wire.share);
          at += wire.length_of(r);
        }
        ASSERT_EQ(at, elements);
        ASSERT_GE(wire.scales * block, wire.share);
        ASSERT_EQ(wire.values(), wire.kHeader + 4 * wire.scales);
        ASSERT_GE(wire.bytes, wire.values() + wire.share);
        ASSERT_EQ(wire.bytes % 16, 0);
        const codec_wire::Sign signs(elements, ranks);
        ASSERT_GE(signs.head, 4 * (ranks + 1));
        ASSERT_GE(signs.bytes, signs.head + (elements + 7) / 8);
        ASSERT_EQ(signs.head % 16 + signs.bytes % 16, 0);
      }
}

}  // namespace codec_aten_test
