// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/codec_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/grad/compression/gram_schmidt.h"

namespace codec_kernels_test {

using namespace trireme;
namespace k = trireme::codec_kernels;

namespace {

std::vector<float> values(int64_t n, uint64_t key) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(4 * uniform01(philox_block(key, 0, static_cast<uint64_t>(i))[0]) - 2);
  return v;
}

const std::vector<int64_t> kSizes = {0, 1, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257, 1000, 9001};

}  // namespace

TEST(grad_codec_kernels, an_int8_is_off_by_half_a_scale_at_most) {
  for (int64_t n : kSizes)
    for (int64_t block : {8, 32, 256}) {
      std::vector<float> x = values(n, 1);
      for (int64_t i = 0; i < n; ++i)
        if (i / block % 3 == 1) x[static_cast<size_t>(i)] = 0;
      std::vector<float> scales(static_cast<size_t>((n + block - 1) / block), -1);
      std::vector<int8_t> q(static_cast<size_t>(n));
      k::quantize(x.data(), n, block, scales.data(), q.data());
      for (int64_t begin = 0; begin < n; begin += 1 + n / 3) {
        std::vector<float> got(static_cast<size_t>(n - begin)), added = got, left = got;
        k::dequantize(q.data(), scales.data(), block, begin, n, 0.5f, got.data());
        std::fill(added.begin(), added.end(), 1.0f);
        k::dequantize_add(q.data(), scales.data(), block, begin, n, added.data());
        k::dequantize_subtract(q.data(), scales.data(), block, begin, n, x.data() + begin,
                               left.data());
        for (int64_t i = begin; i < n; ++i) {
          const auto at = static_cast<size_t>(i - begin);
          const float scale = scales[static_cast<size_t>(i / block)];
          const float want = static_cast<float>(q[static_cast<size_t>(i)]) * scale;
          ASSERT_LE(std::abs(x[static_cast<size_t>(i)] - want), 0.5001f * scale + 1e-30f);
          ASSERT_EQ(got[at], static_cast<float>(q[static_cast<size_t>(i)]) * (scale * 0.5f));
          ASSERT_EQ(added[at], 1 + want);
          ASSERT_EQ(left[at], x[static_cast<size_t>(i)] - want);
        }
      }
    }
}

TEST(grad_codec_kernels, quantising_survives_the_smallest_and_largest_numbers) {
  for (float most : {0.0f, 1e-45f, 1e-38f, 1e-36f, 1e-30f, 1e37f, 3.4e38f}) {
    std::vector<float> x(40, most), back(40), scale(2);
    x[3] = -most;
    std::vector<int8_t> q(40);
    k::quantize(x.data(), 40, 32, scale.data(), q.data());
    k::dequantize(q.data(), scale.data(), 32, 0, 40, 1, back.data());
    for (size_t i = 0; i < 40; ++i)
      EXPECT_LE(std::abs(back[i] - x[i]), most > 1e-36f ? 1e-6f * most : most) << most;
  }
}

TEST(grad_codec_kernels, signs_come_back) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = values(n, 2);
    std::vector<uint8_t> bits(static_cast<size_t>(n + 7) / 8);
    k::pack_signs(x.data(), n, bits.data());
    std::vector<float> got(static_cast<size_t>(n), 10.0f);
    k::add_signs(bits.data(), n, 0.25f, got.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], x[i] < 0 ? 9.75f : 10.25f) << i;
  }
}

TEST(grad_codec_kernels, what_is_not_finite_is_seen_wherever_it_stands) {
  for (int64_t n : kSizes) {
    std::vector<float> x = values(n, 3), kept = values(n, 4);
    float most = 0;
    for (float v : x) most = std::max(most, std::abs(v));
    EXPECT_EQ(k::largest(x.data(), n), most);
    for (size_t i = 0; i < x.size(); i += 1 + x.size() / 9)
      for (float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        std::vector<float> a = x, b = kept;
        b[i] = bad;
        const auto seen = k::add_kept(a.data(), b.data(), n);
        EXPECT_FALSE(std::isfinite(seen.kept) || std::isfinite(seen.sum)) << n << " " << i;
        a = x;
        a[i] = bad;
        EXPECT_FALSE(std::isfinite(k::largest(a.data(), n)));
      }
    std::vector<float> sum = x;
    const auto fine = k::add_kept(sum.data(), kept.data(), n);
    EXPECT_TRUE(std::isfinite(fine.kept) && std::isfinite(fine.sum));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], x[i] + kept[i]);
  }
}

TEST(grad_codec_kernels, sums_of_squares_and_magnitudes) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = values(n, 5);
    double squares = 0, magnitude = 0;
    for (float v : x) {
      squares += static_cast<double>(v) * static_cast<double>(v);
      magnitude += std::abs(static_cast<double>(v));
    }
    EXPECT_NEAR(k::energy(x.data(), n), squares, 1e-5 * squares);
    EXPECT_NEAR(k::magnitude(x.data(), n), magnitude, 1e-5 * magnitude);
  }
}

TEST(grad_codec_kernels, collects_in_order_until_there_is_no_room) {
  for (int64_t n : kSizes)
    for (int64_t room : {int64_t{0}, int64_t{3}, n}) {
      const std::vector<float> x = values(n, 6);
      std::vector<int32_t> got(static_cast<size_t>(room) + 1, -1), want;
      for (size_t i = 0; i < x.size(); ++i)
        if (std::abs(x[i]) >= 1 && static_cast<int64_t>(want.size()) < room)
          want.push_back(static_cast<int32_t>(i));
      ASSERT_EQ(k::collect(x.data(), n, 1, got.data(), room), static_cast<int64_t>(want.size()));
      EXPECT_EQ(got[static_cast<size_t>(room)], -1) << "beyond the room";
      got.resize(want.size());
      EXPECT_EQ(got, want);
    }
}

TEST(grad_codec_kernels, copies_and_adds_at_any_alignment) {
  for (int64_t n : kSizes)
    for (size_t off : {0, 1, 5}) {
      const std::vector<float> x = values(n, 11);
      std::vector<float> to(x.size() + 7, 3);
      k::copy_past_cache(x.data(), n, to.data() + off);
      k::add_to(x.data(), n, to.data() + off);
      for (size_t i = 0; i < to.size(); ++i)
        ASSERT_EQ(to[i], i >= off && i - off < x.size() ? 2 * x[i - off] : 3) << n;
    }
}

TEST(grad_codec_kernels, products_with_thin_factors) {
  for (int64_t rows : {1, 3, 8, 21})
    for (int64_t cols : {1, 5, 16, 37})
      for (int64_t rank : {1, 2, 3, 4, 7}) {
        const auto m = values(rows * cols, 7), q = values(rank * cols, 8);
        std::vector<float> p(static_cast<size_t>(rank * rows)), back(q.size());
        k::project_rows(m.data(), rows, cols, q.data(), rank, p.data());
        k::project_cols(m.data(), rows, cols, p.data(), rank, back.data());
        const auto at = [](const std::vector<float>& v, int64_t i) {
          return static_cast<double>(v[static_cast<size_t>(i)]);
        };
        for (int64_t j = 0; j < rank; ++j) {
          for (int64_t i = 0; i < rows; ++i) {
            double want = 0;
            for (int64_t c = 0; c < cols; ++c) want += at(m, i * cols + c) * at(q, j * cols + c);
            ASSERT_NEAR(at(p, j * rows + i), want, 1e-4);
          }
          for (int64_t c = 0; c < cols; ++c) {
            double want = 0;
            for (int64_t i = 0; i < rows; ++i) want += at(m, i * cols + c) * at(p, j * rows + i);
            ASSERT_NEAR(at(back, j * cols + c), want, 1e-3);
          }
        }
        std::vector<float> row(static_cast<size_t>(cols));
        k::row_of_product(p.data() + rows - 1, rows, q.data(), cols, rank, cols, row.data());
        for (int64_t c = 0; c < cols; ++c) {
          double want = 0;
          for (int64_t j = 0; j < rank; ++j)
            want += at(p, j * rows + rows - 1) * at(q, j * cols + c);
          ASSERT_NEAR(at(row, c), want, 1e-3);
        }
      }
}

TEST(grad_codec_kernels, gram_schmidt_gives_orthonormal_vectors_and_tells_of_lost_ones) {
  for (int64_t n : {1, 4, 19, 400})
    for (int64_t count : {1, 2, 4}) {
      std::vector<float> v = values(count * n, 9);
      if (count > 2)  // the third one is made of the first two
        for (int64_t i = 0; i < n; ++i) {
          const auto e = static_cast<size_t>(i), w = static_cast<size_t>(n);
          v[2 * w + e] = 2 * v[e] - 3 * v[w + e];
        }
      std::vector<int64_t> lost;
      gram_schmidt(v.data(), count, n, 0, [&](int64_t i, float*) {
        lost.push_back(i);
        return false;
      });
      int64_t fit = 0;
      for (int64_t i = 0; i < count; ++i) {
        const bool gone = std::find(lost.begin(), lost.end(), i) != lost.end();
        fit += !gone;
        for (int64_t j = 0; j <= i; ++j)
          EXPECT_NEAR(ordered_dot(v.data() + i * n, v.data() + j * n, n), i == j && !gone ? 1 : 0,
                      1e-5)
              << n << " " << i << " " << j;
      }
      EXPECT_LE(fit, n);
      if (count > 2 && n > 2) {
        EXPECT_EQ(lost, std::vector<int64_t>{2});
      }
    }
}

}  // namespace codec_kernels_test
