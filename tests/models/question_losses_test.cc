// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/question_losses.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace question_losses_test {

using namespace trireme;

namespace {

at::Tensor draw(int64_t rows, int64_t classes) {
  return at::randn({rows, classes}, at::kDouble).mul(2);
}
at::Tensor targets_of(const std::vector<int64_t>& list) { return at::tensor(list, at::kLong); }

/// Σ over the rows that count, from the definition alone.
template <class OfRow>
double by_hand(const at::Tensor& logits, const std::vector<int64_t>& targets, const OfRow& of_row) {
  double sum = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    const at::Tensor p = logits[static_cast<int64_t>(i)].softmax(0);
    sum += of_row(p, targets[i]);
  }
  return sum;
}
double at_(const at::Tensor& p, int64_t i) { return p[i].item<double>(); }

const std::vector<int64_t> kTargets{3, -1, 0, 4, -1, 2};

}  // namespace

TEST(models_question_losses, each_is_the_sum_of_its_formula_over_the_rows_that_count) {
  at::manual_seed(1);
  const at::Tensor logits = draw(6, 5), targets = targets_of(kTargets);
  EXPECT_NEAR(cross_entropy_of_rows(logits, targets).item<double>(),
              by_hand(logits, kTargets, [](auto p, auto y) { return -std::log(at_(p, y)); }),
              1e-12);
  for (const double gamma : {0.0, 1.5, 2.0})
    EXPECT_NEAR(focal_loss_of_rows(logits, targets, gamma).item<double>(),
                by_hand(logits, kTargets,
                        [&](auto p, auto y) {
                          return -std::pow(1 - at_(p, y), gamma) * std::log(at_(p, y));
                        }),
                1e-12);
  for (const double smoothing : {0.0, 0.2})
    EXPECT_NEAR(smoothed_cross_entropy_of_rows(logits, targets, smoothing).item<double>(),
                by_hand(logits, kTargets,
                        [&](auto p, auto y) {
                          double sum = 0;
                          for (int64_t k = 0; k < 5; ++k)
                            sum -= (k == y ? 1 - smoothing : smoothing / 4) * std::log(at_(p, k));
                          return sum;
                        }),
                1e-12);
  const at::Tensor values = at::tensor({0.5, 0.25, 1.0}, at::kDouble);
  EXPECT_DOUBLE_EQ(
      squared_error_of_rows(values, at::tensor({0.0, -1.0, 0.5}, at::kFloat)).item<double>(), 0.5);
  EXPECT_EQ(rows_that_count(targets), 4);
}

TEST(models_question_losses, parts_of_a_batch_add_up_to_it_and_so_do_their_gradients) {
  at::manual_seed(2);
  const at::Tensor targets = targets_of(kTargets);
  using Loss = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  for (const Loss& loss : std::vector<Loss>{
           cross_entropy_of_rows, [](auto x, auto y) { return focal_loss_of_rows(x, y, 2); },
           [](auto x, auto y) { return smoothed_cross_entropy_of_rows(x, y, 0.1); }}) {
    const at::Tensor whole = draw(6, 5).requires_grad_();
    const at::Tensor parts = whole.detach().clone().requires_grad_();
    loss(whole, targets).backward();
    double sum = 0;
    for (int64_t i = 0; i < 6; i += 2) {
      const at::Tensor part = loss(parts.narrow(0, i, 2), targets.narrow(0, i, 2));
      sum += part.item<double>();
      part.backward();
    }
    EXPECT_NEAR(sum, loss(whole, targets).item<double>(), 1e-12);
    EXPECT_LT((whole.grad() - parts.grad()).abs().max().item<double>(), 1e-14);
    EXPECT_EQ(whole.grad()[1].abs().max().item<double>(), 0) << "an ignored row has no gradient";
  }
}

TEST(models_question_losses, a_batch_without_a_target_is_nothing_and_certainty_is_no_nan) {
  const at::Tensor logits = at::zeros({2, 5}).requires_grad_(), none = targets_of({-1, -1});
  for (const at::Tensor& loss :
       {cross_entropy_of_rows(logits, none), focal_loss_of_rows(logits, none),
        smoothed_cross_entropy_of_rows(logits, none, 0.1),
        squared_error_of_rows(logits.select(1, 0), at::full({2}, -1.0))}) {
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
  }
  EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
  const at::Tensor sure = at::tensor({100.0, -100.0}).view({1, 2}).requires_grad_();
  const at::Tensor loss = focal_loss_of_rows(sure, targets_of({0}), 0.5);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_FALSE(sure.grad().isnan().any().item<bool>());
}

TEST(models_question_losses, half_precision_is_summed_in_float32) {
  const at::Tensor logits = at::zeros({6, 5}).to(at::kBFloat16);
  const at::Tensor loss = cross_entropy_of_rows(logits, targets_of(kTargets));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), 4 * std::log(5.0), 1e-6);
}

TEST(models_question_losses, a_smoothing_that_cannot_be_is_refused) {
  for (const double smoothing : {-0.1, 1.0, std::nan("")})
    EXPECT_THROW(smoothed_cross_entropy_of_rows(at::zeros({1, 5}), targets_of({0}), smoothing),
                 UsageError);
  EXPECT_THROW(smoothed_cross_entropy_of_rows(at::zeros({1, 1}), targets_of({0}), 0.1), UsageError);
}

}  // namespace question_losses_test
