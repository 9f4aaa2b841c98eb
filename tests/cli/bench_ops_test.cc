// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_ops.h"

#include <gtest/gtest.h>

#include "cli/worker/bench_plan.h"

namespace trireme::bench::bench_ops_test {
namespace {

TEST(cli_bench_ops, names_lead_back_to_what_they_name) {
  for (size_t i = 0; i < kOpNames.size(); ++i) {
    EXPECT_EQ(op_named(kOpNames[i]), static_cast<Op>(i));
    EXPECT_STREQ(name_of(static_cast<Op>(i)), kOpNames[i]);
  }
  for (size_t i = 0; i < kRedNames.size(); ++i)
    EXPECT_STREQ(name_of(red_named(kRedNames[i])), kRedNames[i]);
  for (const Type& type : kTypes) EXPECT_EQ(&type_named(type.name), &type);
  EXPECT_THROW(op_named("allreduce"), UsageError);
}

TEST(cli_bench_ops, lists_are_chosen_by_name_and_all_means_all) {
  const auto ops = as_strings(kOpNames);
  EXPECT_EQ(choose("all", ops, "OP"), ops);
  EXPECT_EQ(choose("barrier,all_reduce,barrier", ops, "OP"),
            (std::vector<std::string>{"barrier", "all_reduce"}));
  for (const char* wrong : {"", "nothing", "all_reduce,", "all_reduce, barrier", "all,barrier"})
    EXPECT_THROW(choose(wrong, ops, "OP"), UsageError) << wrong;
}

TEST(cli_bench_ops, sizes_are_read_as_nccl_tests_reads_them) {
  EXPECT_EQ(bytes_of("4"), 4);
  EXPECT_EQ(bytes_of("64K"), 64 << 10);
  EXPECT_EQ(bytes_of("1.5M"), 3 << 19);
  EXPECT_EQ(bytes_of("1g"), int64_t{1} << 30);
  for (const char* wrong : {"", "K", "4T", "-4", "4 K", "nan", "inf", "1e30"})
    EXPECT_EQ(bytes_of(wrong), -1) << wrong;
}

TEST(cli_bench_ops, sizes_go_by_factor_or_by_step) {
  EXPECT_EQ(sizes(4, 64, 4, 0), (std::vector<int64_t>{4, 16, 64}));
  EXPECT_EQ(sizes(4, 10, 0, 3), (std::vector<int64_t>{4, 7, 10}));
  EXPECT_EQ(sizes(4, 4, 0, 3), (std::vector<int64_t>{4}));
  EXPECT_EQ(sizes(4, 64, 0, 0), (std::vector<int64_t>{4}));
}

TEST(cli_bench_ops, a_size_is_the_larger_of_what_a_rank_sends_and_receives) {
  for (size_t op = 0; op < kOpNames.size(); ++op)
    for (int n = 1; n <= 16; ++n)
      for (int64_t bytes : {1, 4, 100, 4096, 100000}) {
        const auto o = static_cast<Op>(op);
        const Shape s = shape_of(o, bytes, 4, n);
        SCOPED_TRACE(::testing::Message() << kOpNames[op] << " " << n << " " << bytes);
        EXPECT_EQ(s.bytes, 4 * std::max(s.in, s.out));
        if (o == Op::barrier) continue;
        EXPECT_GE(std::min(s.in, s.out), 1);
        // As close below what was asked as whole parts allow, except for the least.
        EXPECT_TRUE(s.bytes <= bytes || s.bytes <= 4 * n);
        EXPECT_GT(s.bytes, bytes - 4 * n);
        if (in_place(o)) {
          EXPECT_EQ(s.in, s.out);
        }
        const int64_t parts = std::max(s.in, s.out) / s.count;
        EXPECT_TRUE(parts == 1 || parts == n);
      }
}

TEST(cli_bench_ops, bus_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(bus_factor(Op::all_reduce, 4), 1.5);
  for (Op op : {Op::all_gather, Op::reduce_scatter, Op::all_to_all, Op::gather, Op::scatter})
    EXPECT_DOUBLE_EQ(bus_factor(op, 4), 0.75) << name_of(op);
  for (Op op : {Op::broadcast, Op::reduce, Op::sendrecv, Op::pingpong})
    EXPECT_DOUBLE_EQ(bus_factor(op, 4), 1) << name_of(op);
}

TEST(cli_bench_ops, rounds_grow_until_they_are_long_enough_and_no_longer) {
  for (double call : {2e-7, 1e-6, 1e-4, 1e-2, 1.0}) {
    int64_t calls = kFewestCalls;
    for (int tries = 0;; ++tries) {
      ASSERT_LT(tries, 8);
      const int64_t next = more_calls(calls, static_cast<double>(calls) * call);
      if (next == calls) break;
      EXPECT_GT(next, calls);
      calls = next;
    }
    EXPECT_TRUE(static_cast<double>(calls) * call >= kRoundSeconds || calls == kMostCalls);
    EXPECT_LE(static_cast<double>(calls) * call, std::max(1.2 * kRoundSeconds, 3.1 * call));
  }
}

TEST(cli_bench_ops, percentiles_are_values_that_occurred) {
  EXPECT_EQ(percentile({}, 0.9), 0);
  EXPECT_EQ(percentile({5}, 0.9), 5);
  std::vector<double> ten;
  for (int i = 10; i >= 1; --i) ten.push_back(i);
  EXPECT_EQ(percentile(ten, 0.9), 9);
  EXPECT_EQ(percentile(ten, 1), 10);
  EXPECT_EQ(percentile(ten, 0), 1);
  EXPECT_EQ(median(ten), 5.5);
  EXPECT_EQ(median({3, 1, 2}), 2);
}

TEST(cli_bench_ops, figures_keep_to_their_columns) {
  EXPECT_EQ(fixed(0.256, 7), "0.26");
  EXPECT_EQ(fixed(12345.678, 7), "12345.7");
  EXPECT_EQ(fixed(1234567.8, 7), "1234568");
  EXPECT_LE(fixed(123456789.0, 7).size(), 7u);
}

}  // namespace
}  // namespace trireme::bench::bench_ops_test
