// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <cmath>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/split_plan.h"

namespace vocab_cross_entropy_test {

using namespace trireme;

namespace {

namespace F = torch::nn::functional;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor own_columns(const at::Tensor& whole, const Group& g) {
  const Part part = split_evenly(whole.size(-1), g.size())[static_cast<size_t>(g.rank())];
  return whole.narrow(-1, part.begin, part.length).contiguous();
}

at::Tensor reference(const at::Tensor& logits, const at::Tensor& target,
                     const CrossEntropyOptions& o) {
  F::CrossEntropyFuncOptions options;
  options.ignore_index(o.ignore_index).label_smoothing(o.label_smoothing);
  if (o.reduction == LossReduction::none) options.reduction(torch::kNone);
  if (o.reduction == LossReduction::sum) options.reduction(torch::kSum);
  return F::cross_entropy(logits.reshape({-1, logits.size(-1)}), target.reshape({-1}), options);
}

// The loss and the logits' gradient on 1 to 4 ranks against LibTorch's on one.
void compare(const at::Tensor& logits, const at::Tensor& target, const CrossEntropyOptions& o,
             double tolerance) {
  const at::Tensor whole = logits.detach().clone().requires_grad_(true);
  const bool half = logits.scalar_type() == at::kBFloat16;
  const at::Tensor loss = reference(half ? whole.to(at::kFloat) : whole, target, o);
  const at::Tensor factor = at::arange(1, loss.numel() + 1, loss.options().requires_grad(false))
                                .view(loss.sizes())
                                .div(loss.numel());
  loss.backward(factor);
  for (const int ranks : {1, 2, 3, 4})
    run_threads(ranks, [&](Group g) {
      const TensorParallel tp(g);
      const at::Tensor part = own_columns(logits, g).requires_grad_(true);
      const at::Tensor ours = vocab_parallel_cross_entropy(part, target, logits.size(-1), tp, o);
      const auto near = [&](const at::Tensor& a, const at::Tensor& b, const char* what) {
        trireme::check<Error>(at::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true),
                              "{} of rank {} of {}: {} and {}", what, g.rank(), ranks,
                              a.flatten()[0].item<double>(), b.flatten()[0].item<double>());
      };
      near(ours.flatten(), loss.detach().flatten(), "loss");
      ours.backward(factor.view(ours.sizes()));
      near(part.grad(), own_columns(whole.grad(), g), "gradient");
      // The same bits on every rank.
      at::Tensor first = ours.detach().clone();
      g.broadcast(first, 0).wait();
      trireme::check<Error>(at::allclose(first, ours, 0, 0, true), "ranks have different losses");
    });
}

at::Tensor logits_of(int64_t vocab, at::ScalarType dtype = at::kDouble, double scale = 4) {
  torch::manual_seed(vocab);
  return at::randn({3, 5, vocab}, at::kDouble).mul(scale).to(dtype);
}
at::Tensor targets_of(int64_t vocab) {
  at::Tensor target = at::arange(15, at::kLong).mul(7).remainder(vocab).view({3, 5});
  target[1][2] = -100;
  return target;
}

}  // namespace

TEST(layers_tensor_parallel_cross_entropy, is_pytorchs_for_every_reduction_smoothing_and_size) {
  for (const int64_t vocab : {4, 5, 29, 1000})
    for (const double smoothing : {0.0, 0.1, 1.0})
      for (const auto reduction : {LossReduction::none, LossReduction::sum, LossReduction::mean})
        EXPECT_NO_THROW(compare(logits_of(vocab), targets_of(vocab),
                                {.label_smoothing = smoothing, .reduction = reduction}, 1e-10))
            << vocab << " " << smoothing;
}

TEST(layers_tensor_parallel_cross_entropy, float32_and_bfloat16_add_in_float32) {
  for (const double smoothing : {0.0, 0.2}) {
    const CrossEntropyOptions o{.label_smoothing = smoothing};
    EXPECT_NO_THROW(compare(logits_of(1000, at::kFloat), targets_of(1000), o, 1e-5));
    // The losses are exact sums of rounded logits; gradients are rounded to bfloat16.
    EXPECT_NO_THROW(compare(logits_of(1000, at::kBFloat16), targets_of(1000), o, 8e-3));
  }
  run_threads(2, [](Group g) {
    const at::Tensor part = own_columns(logits_of(1000, at::kBFloat16), g);
    const at::Tensor loss =
        vocab_parallel_cross_entropy(part, targets_of(1000), 1000, TensorParallel(g));
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
  });
}

TEST(layers_tensor_parallel_cross_entropy, large_logits_and_infinite_ones_are_pytorchs) {
  at::Tensor logits = logits_of(12, at::kFloat);
  logits[0][0].add_(1e4);                          // exp of it is infinite
  logits[0][1].sub_(1e4);                          // … and zero
  logits[0][2].narrow(0, 0, 3).fill_(-kInfinity);  // all of a rank's part, of four
  logits[0][3].narrow(0, 0, 11).fill_(-kInfinity);
  at::Tensor target = targets_of(12);
  target[0][2] = 5;
  target[0][3] = 11;
  target[0][4] = 0;
  logits[0][4][0] = -kInfinity;  // the target's own: an infinite loss
  EXPECT_NO_THROW(compare(logits, target, {.reduction = LossReduction::none}, 1e-5));
  logits[2][0][7] = std::nan("");
  EXPECT_NO_THROW(compare(logits, target, {.reduction = LossReduction::none}, 1e-5));
}

TEST(layers_tensor_parallel_cross_entropy, ignored_rows_count_nothing_whatever_they_hold) {
  at::Tensor logits = logits_of(9, at::kFloat), target = targets_of(9);
  logits[1][2].fill_(std::nan(""));
  for (const double smoothing : {0.0, 0.1})
    run_threads(3, [&](Group g) {
      const at::Tensor part = own_columns(logits, g).requires_grad_(true);
      const at::Tensor loss = vocab_parallel_cross_entropy(part, target, 9, TensorParallel(g),
                                                           {.label_smoothing = smoothing});
      loss.backward();
      trireme::check<Error>(loss.isfinite().item<bool>(), "the loss is {}", loss.item<double>());
      trireme::check<Error>(part.grad()[1][2].eq(0).all().item<bool>(), "a gradient");
    });
  // All of them: 0 / 0, as PyTorch says.
  EXPECT_NO_THROW(compare(logits_of(9), at::full({3, 5}, -100, at::kLong), {}, 1e-10));
  // Another index than the usual one, which may be a word of the vocabulary.
  EXPECT_NO_THROW(
      compare(logits_of(9), targets_of(9).abs().remainder(9), {.ignore_index = 3}, 1e-10));
}

TEST(layers_tensor_parallel_cross_entropy, wrong_arguments_are_refused_with_their_numbers) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g);
    const at::Tensor whole = at::zeros({3, 10}), target = at::zeros({3}, at::kLong);
    const auto said = [&](const at::Tensor& logits, const at::Tensor& t,
                          CrossEntropyOptions o = {}) -> std::string {
      try {
        vocab_parallel_cross_entropy(logits, t, 10, tp, o);
      } catch (const UsageError& e) {
        return e.what();
      }
      return "";
    };
    const at::Tensor part = own_columns(whole, g);
    EXPECT_EQ(said(part, target), "");
    EXPECT_NE(said(whole, target).find("the logits have 10 columns"), std::string::npos);
    EXPECT_NE(said(part, target.to(at::kInt)).find("must be int64"), std::string::npos);
    EXPECT_NE(said(part, target.narrow(0, 0, 2)).find("target is"), std::string::npos);
    EXPECT_NE(said(part, target.add(10)).find("a target of 10 is outside of the vocabulary of 10"),
              std::string::npos);
    EXPECT_NE(said(part, target.sub(1)).find("a target of -1"), std::string::npos);
    EXPECT_NE(said(part, target, {.label_smoothing = 1.5}).find("outside of [0, 1]"),
              std::string::npos);
    EXPECT_NE(said(part.to(at::kLong), target).find("not of a float type"), std::string::npos);
    g.barrier();  // the group is usable
  });
}

}  // namespace vocab_cross_entropy_test
