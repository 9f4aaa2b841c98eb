// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/reduce_kernels.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/comm/local/oracle.h"

namespace reduce_kernels_test {

using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

using Bytes = std::vector<unsigned char>;

template <class T>
Bytes bytes_of(const std::vector<T>& v) {
  Bytes b(v.size() * sizeof(T));
  if (!b.empty()) std::memcpy(b.data(), v.data(), b.size());
  return b;
}

template <class T>
T at(const Bytes& b, size_t i) {
  T v;
  std::memcpy(&v, b.data() + i * sizeof v, sizeof v);
  return v;
}

// Sources that begin `skip` elements into their memory; guards behind the result must survive.
Bytes reduced(DType t, ReduceOp op, const std::vector<Bytes>& in, size_t skip = 0) {
  const size_t item = size_of(t), bytes = in[0].size(), count = bytes / item;
  std::vector<Bytes> moved;
  std::vector<const void*> src;
  for (auto& b : in) {
    moved.emplace_back(skip * item);
    moved.back().insert(moved.back().end(), b.begin(), b.end());
  }
  for (auto& b : moved) src.push_back(b.data() + skip * item);
  Bytes one(skip * item + bytes + 64, 0xAB), two = one;
  void* dst[] = {one.data() + skip * item, two.data() + skip * item};
  reduce(t, op, src.data(), static_cast<int>(in.size()), dst, 2, count);
  EXPECT_EQ(one, two);
  for (size_t i = 0; i < skip * item; ++i) EXPECT_EQ(one[i], 0xAB) << "before the buffer";
  for (size_t i = skip * item + bytes; i < one.size(); ++i)
    EXPECT_EQ(one[i], 0xAB) << "behind the buffer";
  return {one.begin() + static_cast<long>(skip * item),
          one.begin() + static_cast<long>(skip * item + bytes)};
}

}  // namespace

TEST(comm_local_reduce_kernels, one_to_twenty_sources_equal_the_oracle) {
  for (DType t : kEveryType)
    for (ReduceOp op : kEveryOp) {
      if (!defined_for(t, op)) continue;
      for (int n = 1; n <= 20; n += n < 9 ? 1 : 11) {
        std::vector<Bytes> in;
        for (int q = 0; q < n; ++q) in.push_back(random_values(t, 1100, uint64_t(n * 100 + q), op));
        ASSERT_EQ(reduced(t, op, in), oracle_reduce(t, op, in))
            << name_of(t) << ' ' << name_of(op) << ' ' << n;
      }
    }
}

TEST(comm_local_reduce_kernels, odd_counts_of_every_type_and_reduction_equal_the_oracle) {
  for (DType t : kEveryType)
    for (ReduceOp op : kEveryOp) {
      if (!defined_for(t, op)) continue;
      for (int n = 1; n <= 9; ++n)
        for (size_t count : {1, 2, 3, 5, 7, 13, 31, 33, 63, 67, 129}) {
          std::vector<Bytes> in;
          for (int q = 0; q < n; ++q)
            in.push_back(random_values(t, count, uint64_t(n * 1000 + q) + count, op));
          ASSERT_EQ(reduced(t, op, in), oracle_reduce(t, op, in))
              << name_of(t) << ' ' << name_of(op) << ' ' << n << " x " << count;
        }
    }
}

TEST(comm_local_reduce_kernels, position_and_count_change_no_bit) {
  for (auto [t, op] : {std::pair{DType::f64, ReduceOp::sum},
                       {DType::f32, ReduceOp::sum},
                       {DType::f16, ReduceOp::sum},
                       {DType::bf16, ReduceOp::sum},
                       {DType::u8, ReduceOp::product},
                       {DType::i16, ReduceOp::max},
                       {DType::i32, ReduceOp::bxor},
                       {DType::i64, ReduceOp::product},
                       {DType::c64, ReduceOp::product},
                       {DType::c128, ReduceOp::product}})
    for (int n : {2, 3, 11}) {
      std::vector<Bytes> in;
      for (int q = 0; q < n; ++q) in.push_back(random_values(t, 140, 17 + uint64_t(q), op));
      const Bytes whole = reduced(t, op, in);
      const size_t item = size_of(t);
      for (size_t skip = 0; skip <= 70; skip += n == 2 ? 1 : 7)
        for (size_t count = 0; count <= 70; ++count) {
          std::vector<Bytes> part;
          for (auto& b : in)
            part.emplace_back(b.begin() + static_cast<long>(skip * item),
                              b.begin() + static_cast<long>((skip + count) * item));
          const Bytes got = reduced(t, op, part, skip);
          ASSERT_TRUE(
              std::equal(got.begin(), got.end(), whole.begin() + static_cast<long>(skip * item)))
              << name_of(t) << " skip " << skip << " count " << count;
        }
    }
}

TEST(comm_local_reduce_kernels, a_target_may_be_a_source) {
  for (int n : {2, 3, 9}) {
    std::vector<Bytes> in;
    for (int q = 0; q < n; ++q) in.push_back(random_values(DType::f32, 1037, 5 + uint64_t(q)));
    const Bytes want = oracle_reduce(DType::f32, ReduceOp::sum, in);
    std::vector<const void*> src;
    std::vector<void*> dst;
    for (auto& b : in) src.push_back(b.data()), dst.push_back(b.data());
    reduce(DType::f32, ReduceOp::sum, src.data(), n, dst.data(), n, 1037);
    for (auto& b : in) EXPECT_EQ(b, want);
  }
}

TEST(comm_local_reduce_kernels, nan_propagates_whichever_source_has_it) {
  auto nan_at = [](DType t, size_t count, bool here) {
    auto put = [&](auto one, auto nan) {
      std::vector<decltype(one)> v(count, one);
      if (here)
        for (size_t i = 0; i < count; i += 3) v[i] = nan;
      return bytes_of(v);
    };
    switch (t) {
      case DType::f64:
        return put(1.0, std::nan(""));
      case DType::f32:
        return put(1.0f, std::nanf(""));
      case DType::f16:
        return put(uint16_t{0x3c00}, uint16_t{0x7e00});
      default:
        return put(uint16_t{0x3f80}, uint16_t{0x7fc0});
    }
  };
  auto is_nan = [](DType t, const Bytes& b, size_t i) {
    switch (t) {
      case DType::f64:
        return std::isnan(at<double>(b, i));
      case DType::f32:
        return std::isnan(at<float>(b, i));
      case DType::f16:
        return std::isnan(half_to_float(at<uint16_t>(b, i)));
      default:
        return std::isnan(bf16_to_float(at<uint16_t>(b, i)));
    }
  };
  for (DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (ReduceOp op :
         {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product})
      for (int n : {1, 2, 3, 5, 12})
        for (int who = 0; who < n; ++who) {
          std::vector<Bytes> in;
          for (int q = 0; q < n; ++q) in.push_back(nan_at(t, 37, q == who));
          const Bytes got = reduced(t, op, in);
          for (size_t i = 0; i < 37; ++i)
            ASSERT_EQ(is_nan(t, got, i), i % 3 == 0)
                << name_of(t) << ' ' << name_of(op) << ' ' << who << " of " << n;
        }
}

// The larger of itself and itself: load, then store. Every half pattern must come back.
TEST(comm_local_reduce_kernels, every_half_pattern_survives_load_and_store) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (DType t : {DType::f16, DType::bf16}) {
    const Bytes got = reduced(t, ReduceOp::max, {bytes_of(all), bytes_of(all)});
    for (size_t i = 0; i < all.size(); ++i) {
      const auto g = at<uint16_t>(got, i);
      const float value = t == DType::f16 ? half_to_float(all[i]) : bf16_to_float(all[i]);
      if (std::isnan(value))
        ASSERT_TRUE(std::isnan(t == DType::f16 ? half_to_float(g) : bf16_to_float(g))) << i;
      else
        ASSERT_EQ(g, all[i]);
    }
  }
}

TEST(comm_local_reduce_kernels, halves_round_to_nearest_even_into_denormals_and_infinity) {
  for (DType t : {DType::f16, DType::bf16}) {
    // Every pattern against partners that make ties, cancel, overflow and underflow.
    std::vector<uint16_t> a, b;
    for (uint32_t i = 0; i < 65536; i += 7)
      for (uint16_t partner : {uint16_t{0x0001}, uint16_t{0x8001}, uint16_t{0x03ff},
                               uint16_t{0x3c00}, uint16_t{0x3c01}, uint16_t{0xbc01},
                               uint16_t{0x7bff}, uint16_t{0x7f7f}, uint16_t{0x7c00}}) {
        auto value = [t](uint32_t bits) {
          return t == DType::f16 ? half_to_float(static_cast<uint16_t>(bits))
                                 : bf16_to_float(static_cast<uint16_t>(bits));
        };
        if (std::isnan(value(i) + value(partner))) continue;
        a.push_back(static_cast<uint16_t>(i)), b.push_back(partner);
      }
    const std::vector<Bytes> in{bytes_of(a), bytes_of(b)};
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      const Bytes got = reduced(t, op, in), want = oracle_reduce(t, op, in);
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_EQ(at<uint16_t>(got, i), at<uint16_t>(want, i))
            << name_of(t) << ' ' << name_of(op) << std::hex << ' ' << a[i] << ' ' << b[i];
    }
  }
}

TEST(comm_local_reduce_kernels, products_of_integers_wrap) {
  const std::vector<Bytes> wide{bytes_of(std::vector<int64_t>(9, 0x123456789abcdefLL)),
                                bytes_of(std::vector<int64_t>(9, -0x76543210fedcbLL))};
  EXPECT_EQ(at<uint64_t>(reduced(DType::i64, ReduceOp::product, wide), 8),
            uint64_t{0x123456789abcdef} * (0 - uint64_t{0x76543210fedcb}));
  const std::vector<Bytes> narrow{Bytes(17, 201), Bytes(17, 77)};
  EXPECT_EQ(reduced(DType::u8, ReduceOp::product, narrow), Bytes(17, uint8_t(201 * 77)));
}

TEST(comm_local_reduce_kernels, integers_wrap) {
  const auto i32 = std::numeric_limits<int32_t>::max();
  const auto i64 = std::numeric_limits<int64_t>::max();
  for (int n : {2, 10}) {
    auto of = [n](auto first) {
      using T = decltype(first);
      std::vector<Bytes> in{bytes_of(std::vector<T>(33, first))};
      for (int q = 1; q < n; ++q) in.push_back(bytes_of(std::vector<T>(33, T{1})));
      return in;
    };
    const Bytes a = reduced(DType::i32, ReduceOp::sum, of(i32)),
                b = reduced(DType::i64, ReduceOp::sum, of(i64)),
                c = reduced(DType::u8, ReduceOp::sum, of(uint8_t{255}));
    for (size_t i = 0; i < 33; ++i) {
      EXPECT_EQ(at<int32_t>(a, i), std::numeric_limits<int32_t>::min() + n - 2);
      EXPECT_EQ(at<int64_t>(b, i), std::numeric_limits<int64_t>::min() + n - 2);
      EXPECT_EQ(c[i], n - 2);
    }
  }
}

TEST(comm_local_reduce_kernels, min_and_max_of_integers_keep_their_sign) {
  const std::vector<Bytes> in{bytes_of(std::vector<int64_t>(19, INT64_MIN)),
                              bytes_of(std::vector<int64_t>(19, INT64_MAX))};
  EXPECT_EQ(reduced(DType::i64, ReduceOp::min, in), in[0]);
  EXPECT_EQ(reduced(DType::i64, ReduceOp::max, in), in[1]);
  const std::vector<Bytes> u{Bytes(19, 0x7f), Bytes(19, 0x80)};  // unsigned
  EXPECT_EQ(reduced(DType::u8, ReduceOp::max, u), u[1]);
  EXPECT_EQ(reduced(DType::i8, ReduceOp::max, u), u[0]);
}

}  // namespace reduce_kernels_test
