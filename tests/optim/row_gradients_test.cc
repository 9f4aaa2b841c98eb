// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rows/row_gradients.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tests/support/refusals.h"

namespace row_gradients_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

at::Tensor numbers(std::vector<int64_t> of) { return torch::tensor(of, torch::kLong); }

// Equal bits, also of NaN and of zeros.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto as = a.scalar_type() == at::kDouble ? at::kLong : at::kInt;
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.view(as).equal(b.view(as));
}
bool same(const RowGradients& a, const RowGradients& b) {
  return a.rows.equal(b.rows) && same_bits(a.gradients, b.gradients);
}

/// The entries in another order, dealt to so many parts.
std::vector<RowGradients> dealt(const RowGradients& all, int64_t parts) {
  const at::Tensor order = torch::randperm(all.rows.size(0), torch::kLong);
  const at::Tensor part = torch::randint(parts, {all.rows.size(0)}, torch::kLong);
  std::vector<RowGradients> out;
  for (int64_t i = 0; i < parts; ++i) {
    const at::Tensor mine = order.index({part == i});
    out.push_back({all.rows.index_select(0, mine), all.gradients.index_select(0, mine)});
  }
  return out;
}

}  // namespace

TEST(optim_row_gradients, each_row_is_there_once_in_order_with_the_sum_of_its_gradients) {
  const RowGradients merged =
      merge_rows({{numbers({7, 2, 7}), torch::tensor({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}})},
                  {numbers({}), torch::empty({0, 2})},
                  {numbers({0, 7}), torch::tensor({{-1.f, 0.5f}, {10.f, 20.f}})}});
  EXPECT_TRUE(merged.rows.equal(numbers({0, 2, 7})));
  EXPECT_TRUE(merged.gradients.equal(torch::tensor({{-1.f, 0.5f}, {3.f, 4.f}, {16.f, 28.f}})));
  const RowGradients none = merge_rows({{numbers({}), torch::empty({0, 3, 2})}});
  EXPECT_EQ(none.rows.size(0), 0);
  EXPECT_EQ(none.gradients.sizes(), (std::vector<int64_t>{0, 3, 2}));
}

TEST(optim_row_gradients, neither_the_order_nor_who_sent_what_changes_a_bit) {
  torch::manual_seed(11);
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16})
    for (int round = 0; round < 40; ++round) {
      const int64_t n = 1 + round * 5;
      // Sums whose rounding depends on their order.
      RowGradients all{torch::randint(1 + n / 4, {n}, torch::kLong),
                       (torch::randn({n, 3, 2}, torch::kDouble) *
                        torch::pow(10, torch::randn({n, 1, 1}, torch::kDouble) * 3))
                           .clamp(-6e4, 6e4)
                           .to(type)};
      if (round % 4 == 1) all.gradients[0].fill_(std::nan(""));
      if (round % 4 == 2) all.gradients[0].fill_(-0.0);
      const RowGradients merged = merge_rows({all});
      for (int64_t parts = 1; parts <= 4; ++parts)
        ASSERT_TRUE(same(merge_rows(dealt(all, parts)), merged)) << type << round << parts;
    }
}

TEST(optim_row_gradients, a_sum_is_rounded_once_and_what_is_alone_keeps_its_bits) {
  const RowGradients merged =
      merge_rows({{numbers({4, 4, 4, 1}), torch::tensor({{1e8f}, {1.f}, {-1e8f}, {-0.f}})}});
  EXPECT_EQ(merged.gradients[1][0].item<float>(), 1);
  EXPECT_TRUE(std::signbit(merged.gradients[0][0].item<float>()));
  const auto half =
      merge_rows({{numbers({0, 0}), torch::tensor({{1024.f}, {0.5f}}).to(at::kHalf)}});
  EXPECT_EQ(half.gradients.scalar_type(), at::kFloat);
  EXPECT_EQ(half.gradients[0][0].item<float>(), 1024.5f);
}

TEST(optim_row_gradients, threads_change_no_bit_and_the_sums_are_index_adds) {
  torch::manual_seed(3);
  const RowGradients all{torch::randint(900, {5000}, torch::kLong),
                         torch::randn({5000, 33}, torch::kDouble)};
  const int before = at::get_num_threads();
  std::vector<RowGradients> merged;
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    merged.push_back(merge_rows({all}));
  }
  at::set_num_threads(before);
  EXPECT_TRUE(same(merged[0], merged[1]));
  const at::Tensor sums = torch::zeros({900, 33}, torch::kDouble);
  sums.index_add_(0, all.rows, all.gradients);
  const at::Tensor ours = torch::zeros({900, 33}, torch::kDouble);
  ours.index_copy_(0, merged[0].rows, merged[0].gradients);
  EXPECT_LT((ours - sums).abs().max().item<double>(), 1e-12);
}

TEST(optim_row_gradients, what_cannot_be_merged_is_refused_by_its_part) {
  const RowGradients good{numbers({1}), torch::ones({1, 2})};
  const auto says = [&](const RowGradients& second, const std::string& part) {
    const std::string text = refusal([&] { merge_rows({good, second}); });
    EXPECT_TRUE(has(text, part)) << text;
  };
  EXPECT_TRUE(has(refusal([] { merge_rows({}); }), "merge_rows: no parts"));
  says({}, "part 1 has undefined rows or gradients");
  says({numbers({1}).to(at::kInt), torch::ones({1, 2})}, "rows of part 1 are Int [1]");
  says({numbers({1}).view({1, 1}), torch::ones({1, 2})}, "rows of part 1 are Long [1, 1]");
  says({numbers({1, 2}), torch::ones({1, 2})}, "part 1 has 2 rows and gradients Float [1, 2]");
  says({numbers({1}), torch::ones({1, 2}, torch::kLong)}, "part 1 has 1 rows and gradients Long");
  says({numbers({1}), torch::ones({1})}, "part 1 has 1 rows and gradients Float [1]");
  says({numbers({1}), torch::ones({1, 3})}, "those of part 0 are Float [1, 2]");
  says({numbers({1}), torch::ones({1, 2}, torch::kDouble)}, "part 1 are Double [1, 2]");
  says({numbers({3, -1}), torch::ones({2, 2})}, "row 1 of part 1 is -1: rows count from 0");
}

}  // namespace row_gradients_test
