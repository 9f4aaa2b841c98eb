// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/batches.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace batches_test {

using namespace trireme;

namespace {

std::optional<BatchNumber> number(int64_t value, bool yields = false) {
  if (value == 0) return {};
  return BatchNumber{value, "f:1:1", yields};
}

std::string error_of(const BatchInputs& inputs, int dp) {
  try {
    solve_batches(inputs, dp);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// Over all small sizes: an answer keeps every number given and the product; there is no answer
// exactly when no triple of positive integers does.
TEST(config_batches, agree_with_a_search_over_all_small_sizes) {
  for (int dp = 1; dp <= 4; ++dp)
    for (int train = 0; train <= 24; ++train)
      for (int micro = 0; micro <= 6; ++micro)
        for (int accumulation = 0; accumulation <= 6; ++accumulation) {
          BatchInputs inputs{number(train), number(micro), number(accumulation)};
          bool possible = false;
          if (train || micro) {  // what is absent beside train or micro alone: accumulation is 1
            for (int m = 1; m <= 24 && !possible; ++m)
              for (int a = 1; a <= 24 && !possible; ++a) {
                if ((micro && m != micro) || (accumulation && a != accumulation)) continue;
                if (!accumulation && !(train && micro) && a != 1) continue;
                possible = !train || m * a * dp == train;
              }
          }
          SCOPED_TRACE(::testing::Message()
                       << dp << " " << train << " " << micro << " " << accumulation);
          if (!possible) {
            EXPECT_THROW(solve_batches(inputs, dp), UsageError);
            continue;
          }
          auto b = solve_batches(inputs, dp);
          EXPECT_EQ(b.train, b.micro * b.accumulation * dp);
          EXPECT_GE(b.micro, 1);
          EXPECT_GE(b.accumulation, 1);
          EXPECT_EQ(b.dp, dp);
          EXPECT_TRUE(b.note.empty());
          if (train) {
            EXPECT_EQ(b.train, train);
          }
          if (micro) {
            EXPECT_EQ(b.micro, micro);
          }
          if (accumulation) {
            EXPECT_EQ(b.accumulation, accumulation);
          }
        }
}

// Whatever yields: an answer exists exactly when it exists with or without what yields, and never
// changes a number that does not yield.
TEST(config_batches, numbers_that_yield_never_stand_in_the_way) {
  for (int dp = 1; dp <= 3; ++dp)
    for (int train = 0; train <= 12; ++train)
      for (int micro = 0; micro <= 4; ++micro)
        for (int accumulation = 0; accumulation <= 4; ++accumulation)
          for (int yields = 0; yields < 3; ++yields) {
            BatchInputs inputs{number(train, yields == 0), number(micro, yields == 1),
                               number(accumulation, yields == 2)};
            BatchInputs firm = inputs;
            if (yields == 0) firm.train.reset();
            if (yields == 1) firm.micro.reset();
            if (yields == 2) firm.accumulation.reset();
            bool ok = error_of(inputs, dp).empty(), ok_firm = error_of(firm, dp).empty();
            BatchInputs strict{number(train), number(micro), number(accumulation)};
            bool ok_strict = error_of(strict, dp).empty();
            EXPECT_EQ(ok, ok_firm || ok_strict);
            if (!ok) continue;
            auto b = solve_batches(inputs, dp);
            EXPECT_EQ(b.train, b.micro * b.accumulation * dp);
            EXPECT_EQ(b.note.empty(), ok_strict);
            if (firm.train) {
              EXPECT_EQ(b.train, train);
            }
            if (firm.micro) {
              EXPECT_EQ(b.micro, micro);
            }
            if (firm.accumulation) {
              EXPECT_EQ(b.accumulation, accumulation);
            }
          }
}

TEST(config_batches, contradiction_names_every_factor) {
  auto text = error_of(
      {BatchNumber{64, "a.json:2:3"}, BatchNumber{8, "a.json:3:3"}, BatchNumber{3, "--set"}}, 2);
  EXPECT_EQ(
      text,
      "train_batch_size 64 (a.json:2:3) is not train_micro_batch_size_per_gpu 8 (a.json:3:3) × "
      "gradient_accumulation_steps 3 (--set) × 2 ranks = 48: change one, or leave one out to have "
      "it derived");
}

TEST(config_batches, a_batch_that_does_not_divide_names_its_neighbours) {
  EXPECT_EQ(error_of({BatchNumber{10, "a"}, {}, {}}, 4),
            "train_batch_size 10 (a) is not divisible by 4 ranks: use 8 or 12");
  EXPECT_EQ(error_of({BatchNumber{3, "a"}, BatchNumber{2, "b"}, {}}, 2),
            "train_batch_size 3 (a) is not divisible by train_micro_batch_size_per_gpu 2 (b) × 2 "
            "ranks: use 4");
}

TEST(config_batches, nothing_given_says_what_to_give) {
  EXPECT_NE(error_of({}, 1).find("train_micro_batch_size_per_gpu"), std::string::npos);
  EXPECT_NE(error_of({{}, {}, BatchNumber{2, "a"}}, 1), "");
  EXPECT_NE(error_of({BatchNumber{4, "a"}, {}, {}}, 0), "");
  EXPECT_NE(error_of({BatchNumber{-4, "a"}, {}, {}}, 1), "");
}

TEST(config_batches, products_that_overflow_are_refused) {
  int64_t big = int64_t{1} << 40;
  EXPECT_NE(error_of({{}, BatchNumber{big, "a"}, BatchNumber{big, "b"}}, 2).find("too large"),
            std::string::npos);
}

}  // namespace batches_test
