// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_values.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace trireme::bench::bench_values_test {
namespace {

using Buffers = std::vector<std::vector<double>>;  // of each rank

/// What the operation is, written down once more and slowly.
Buffers done(Op op, Red red, const Buffers& in, int root, int64_t part) {
  const size_t n = in.size(), at_root = static_cast<size_t>(root);
  Buffers out(n);
  auto reduced = [&](size_t i) {
    double r = in[0][i];
    for (size_t q = 1; q < n; ++q)
      r = red == Red::prod  ? r * in[q][i]
          : red == Red::min ? std::min(r, in[q][i])
          : red == Red::max ? std::max(r, in[q][i])
                            : r + in[q][i];
    return red == Red::avg ? r / static_cast<double>(n) : r;
  };
  const auto p = static_cast<size_t>(part);
  for (size_t r = 0; r < n; ++r) {
    if (op == Op::all_reduce || (op == Op::reduce && r == at_root))
      for (size_t i = 0; i < in[0].size(); ++i) out[r].push_back(reduced(i));
    if (op == Op::reduce_scatter)
      for (size_t i = 0; i < p; ++i) out[r].push_back(reduced(r * p + i));
    if (op == Op::broadcast) out[r] = in[at_root];
    if (op == Op::all_gather || (op == Op::gather && r == at_root))
      for (const auto& part_of_q : in)
        out[r].insert(out[r].end(), part_of_q.begin(), part_of_q.end());
    if (op == Op::scatter)
      for (size_t i = 0; i < p; ++i) out[r].push_back(in[at_root][r * p + i]);
    if (op == Op::all_to_all)
      for (size_t q = 0; q < n; ++q)
        for (size_t i = 0; i < p; ++i) out[r].push_back(in[q][r * p + i]);
    if (op == Op::sendrecv) out[r] = in[(r + n - 1) % n];
    if (op == Op::pingpong && r < 2) out[r] = in[0];
  }
  return out;
}

TEST(cli_bench_values, what_is_expected_is_what_the_operation_gives) {
  for (size_t o = 0; o + 1 < kOpNames.size(); ++o)
    for (size_t red = 0; red < kRedNames.size(); ++red)
      for (int n = 1; n <= 9; ++n)
        for (int root = 0; root < n; root += std::max(1, n - 1)) {
          const auto op = static_cast<Op>(o);
          const auto reduction = static_cast<Red>(red);
          if (op == Op::pingpong && n < 2) continue;
          const Shape shape = shape_of(op, 40 * n, 4, n);
          Buffers in(static_cast<size_t>(n));
          for (int r = 0; r < n; ++r)
            for (int64_t i = 0; i < shape.in; ++i)
              in[static_cast<size_t>(r)].push_back(value_at(op, reduction, r, i, n));
          const int64_t part =
              op == Op::reduce_scatter || op == Op::scatter ? shape.out : shape.count;
          const Buffers out = done(op, reduction, in, root, part);
          for (int r = 0; r < n; ++r) {
            const auto& result = out[static_cast<size_t>(r)];
            ASSERT_EQ(has_result(op, r, root), !result.empty()) << kOpNames[o] << " rank " << r;
            for (size_t i = 0; i < result.size(); ++i)
              ASSERT_EQ(expected_at(op, reduction, r, static_cast<int64_t>(i), n, root, part),
                        result[i])
                  << kOpNames[o] << " " << kRedNames[red] << " rank " << r << " of " << n
                  << " root " << root << " element " << i;
          }
        }
}

TEST(cli_bench_values, a_misplaced_or_untouched_element_shows) {
  for (int n : {2, 3, 8}) {
    // Moved data: neighbours, and the same place of another rank, differ.
    for (int64_t i = 0; i < 500; ++i)
      for (int r = 0; r < n; ++r) {
        const int v = value_at(Op::all_gather, Red::sum, r, i, n);
        EXPECT_NE(v, value_at(Op::all_gather, Red::sum, r, i + 1, n));
        EXPECT_NE(v, value_at(Op::all_gather, Red::sum, (r + 1) % n, i, n));
        EXPECT_NE(v, kPoison);
      }
    // Sums: where n divides by 3 every place has the same one; else leaving a rank out, or taking
    // the neighbour's place, shows at some place.
    bool differs = n % 3 == 0;
    for (int64_t i = 0; i < 3; ++i)
      differs = differs || expected_at(Op::all_reduce, Red::sum, 0, i, n, 0, 9) !=
                               expected_at(Op::all_reduce, Red::sum, 0, i + 1, n, 0, 9);
    EXPECT_TRUE(differs) << n;
  }
}

TEST(cli_bench_values, every_type_holds_every_value_exactly) {
  for (size_t red = 0; red < kRedNames.size(); ++red)
    for (int n = 1; n <= 64; ++n)
      for (int64_t i = 0; i < 200; ++i) {
        const auto reduction = static_cast<Red>(red);
        const double e = expected_at(Op::all_reduce, reduction, 0, i, n, 0, 1);
        EXPECT_LE(e, 127);  // int8, and bfloat16's 256 whole numbers
        EXPECT_GE(e, 0);
        if (reduction != Red::avg) {
          EXPECT_EQ(e, static_cast<int>(e));
        }
      }
}

TEST(cli_bench_values, only_a_mean_may_be_rounded) {
  const Type& half = type_named("half");
  EXPECT_TRUE(is_right(3, 3, Red::sum, half));
  EXPECT_FALSE(is_right(3.001, 3, Red::sum, half));
  EXPECT_TRUE(is_right(0.6665, 2.0 / 3, Red::avg, half));
  EXPECT_FALSE(is_right(0.67, 2.0 / 3, Red::avg, half));
  EXPECT_FALSE(is_right(__builtin_nan(""), 1, Red::avg, half));
  EXPECT_FALSE(is_right(2, 1, Red::avg, type_named("int32")));
}

}  // namespace
}  // namespace trireme::bench::bench_values_test
