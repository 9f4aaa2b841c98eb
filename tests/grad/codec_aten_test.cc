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
#include "trireme/grad/compression/gram_schmidt.h"
#include "trireme/grad/compression/top_k_hook.h"
#include "trireme/grad/compression/top_k_wire.h"

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

TEST(grad_codec_aten, the_largest_elements_and_their_places_are_the_cpus_bytes) {
  // Below one block of places and beyond it; sparse enough for blocks, and not.
  for (const int64_t n : {1, 2, 7, 64, 65, 1000, 65536, 65537, 150000})
    for (const double density : {1e-4, 0.01, 0.0626, 0.3, 1.0}) {
      at::Tensor x = values(1, n, 9).view({n});
      if (n == 1000) x.fill_(-2);  // all of one magnitude
      const int64_t k = top_k::chosen(n, density);
      const at::Tensor mask = codec_aten::largest_elements(x, k);
      const std::vector<int32_t> want = largest_elements(x.data_ptr<float>(), n, k);
      const at::Tensor places = mask.nonzero().view({-1});
      ASSERT_EQ(places.numel(), k) << n << ", " << density;
      const top_k::Layout layout(n, k);
      std::vector<char> bytes(static_cast<size_t>(layout.bytes));
      top_k::Writer writer(layout, bytes.data());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(places[static_cast<int64_t>(i)].item<int64_t>(), want[i]) << n << ", " << density;
        if (i > 100) break;  // the bytes say the rest
      }
      for (const int32_t i : want) writer.add(i);
      const at::Tensor to = at::full({layout.places}, 0x55, at::kByte);
      codec_aten::write_places(layout, mask, places, to);
      ASSERT_EQ(std::memcmp(to.data_ptr(), bytes.data(), static_cast<size_t>(layout.places)), 0)
          << n << ", " << density;
      const codec_aten::ReadPlaces read = codec_aten::read_places(layout, to);
      EXPECT_TRUE(read.valid.item<bool>()) << n << ", " << density;
      EXPECT_TRUE(read.places.equal(places)) << n << ", " << density;
    }
}

// Memory of a peer may hold anything: what the CPU's reader refuses this refuses, and it reads
// nothing outside.
TEST(grad_codec_aten, places_that_are_not_of_the_bucket_are_refused_as_the_cpu_refuses_them) {
  int refused = 0, taken = 0;
  for (const int64_t n : {70, 4096, 70000, 200000})
    for (const int64_t k : {int64_t{1}, int64_t{3}, n / 2})
      for (uint64_t round = 0; round < 40; ++round) {
        const top_k::Layout layout(n, k);
        at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
        char* raw = reinterpret_cast<char*>(bytes.data_ptr<uint8_t>());
        top_k::Writer writer(layout, raw);
        for (int64_t i = 0; i < k; ++i) writer.add(i * (n / k));
        // One byte of the places is another, or all of the first ones are.
        const auto draw = philox_block(17, round, static_cast<uint64_t>(n * k));
        const auto at = static_cast<int64_t>(draw[0] % static_cast<uint64_t>(layout.places));
        if (round % 4 == 3)
          std::memset(raw, static_cast<int>(draw[1] & 0xFF),
                      static_cast<size_t>(std::min<int64_t>(layout.places, 64)));
        else if (round % 4)
          raw[at] = static_cast<char>(draw[1]);
        const bool valid = top_k::Reader(layout, raw).valid();
        const codec_aten::ReadPlaces read =
            codec_aten::read_places(layout, bytes.narrow(0, 0, layout.places));
        ASSERT_EQ(read.valid.item<bool>(), valid) << n << ", " << k << ", round " << round;
        ++(valid ? taken : refused);
      }
  EXPECT_GT(refused, 100);
  EXPECT_GT(taken, 100);
}

TEST(grad_codec_aten, rows_become_orthonormal_as_on_the_cpu_and_lost_ones_are_replaced) {
  for (const int64_t count : {1, 2, 4})
    for (const int64_t n : {4, 9, 300})
      for (const double epsilon : {0.0, 0.1})
        for (const bool replaced : {false, true}) {
          at::Tensor rows = at::empty({count, n}), instead = at::empty({count, n});
          for (int64_t i = 0; i < count * n; ++i) {
            const auto u = philox_block(3, static_cast<uint64_t>(n), static_cast<uint64_t>(i));
            rows.view({-1})[i] = uniform01(u[0]) - 0.5f;
            instead.view({-1})[i] = uniform01(u[1]) - 0.5f;
          }
          // The last is made up of the others, or is zero.
          rows[count - 1] =
              count > 1 ? rows[0] * -3 + rows[count - 2] * (count > 2 ? 2 : 0) : at::zeros({n});
          at::Tensor want = rows.clone();
          gram_schmidt(want.data_ptr<float>(), count, n, epsilon, [&](int64_t i, float* v) {
            if (replaced) std::memcpy(v, instead[i].data_ptr(), static_cast<size_t>(n) * 4);
            return replaced;
          });
          at::Tensor got = rows.clone();
          codec_aten::orthonormalize(got, epsilon, replaced ? instead : at::Tensor());
          // With an epsilon the last one is what little is left, and float32's errors in it.
          const double near = epsilon == 0 ? 1e-6 : 1e-4;
          ASSERT_TRUE(got.allclose(want, 1e-5, near))
              << count << " of " << n << ", epsilon " << epsilon << "\n"
              << got << want;
          if (epsilon != 0) continue;  // shorter than 1, and so not orthogonal
          if (!replaced) {
            EXPECT_EQ(got[count - 1].abs().sum().item<float>(), 0) << "zeros, not noise";
          } else {
            EXPECT_TRUE(got.matmul(got.t()).allclose(at::eye(count), 0, 1e-5));
          }
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
