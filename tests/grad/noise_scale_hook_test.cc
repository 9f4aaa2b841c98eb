// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/noise_scale_hook.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "trireme/base/error.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace noise_scale_hook_test {

using namespace trireme;

namespace {

/// Two layers with fixed weights; sizes that leave gaps between parameters in their bucket.
torch::nn::Sequential make() {
  torch::nn::Sequential net(torch::nn::Linear(9, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
  torch::NoGradGuard no_grad;
  double phase = 1;
  for (auto& p : net->parameters())
    p.copy_(torch::arange(p.numel(), at::kDouble).add(phase++).sin().view(p.sizes()).mul(0.5));
  return net;
}

at::Tensor rows(int64_t n, double phase) {
  return torch::arange(n * 9, at::kDouble).add(phase).cos().view({n, 9}).to(at::kFloat);
}

double squares(const std::vector<at::Tensor>& gradients, double factor = 1) {
  double sum = 0;
  for (const auto& g : gradients) sum += g.to(at::kDouble).mul(factor).pow(2).sum().item<double>();
  return sum;
}

std::vector<at::Tensor> gradients_of(const torch::nn::Sequential& net) {
  std::vector<at::Tensor> all;
  for (const auto& p : net->parameters()) all.push_back(p.grad());
  return all;
}

}  // namespace

TEST(grad_noise_scale_hook, measures_what_each_rank_gave_and_leaves_the_reduction_its_bits) {
  for (int n : {2, 3})
    run_threads(n, [&](Group g) {
      torch::nn::Sequential plain = make(), measured = make(), alone = make();
      NoiseScaleHook parts;
      DdpOptions options;
      options.hook = parts.hook();
      options.bucket_bytes = 64;  // several buckets, each with a tail that does not count
      DistributedDataParallel one(plain, g), two(measured, g, options);
      EXPECT_GT(two.reducer().buckets().size(), 1u);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor x = rows(4, g.rank() + 10 * step);
        for (auto* net : {&plain, &measured, &alone}) {
          (*net)->zero_grad();
          (*net)->forward(x).pow(2).mean().backward();
        }
        const auto a = gradients_of(plain), b = gradients_of(measured);
        for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i]));
        at::Tensor mean = torch::tensor({squares(gradients_of(alone))}, at::kDouble);
        g.all_reduce(mean, ReduceOp::avg).wait();
        const double norm = std::sqrt(squares(b));
        const GradientParts got = parts.take(g, 4, 1.0 / n, norm, 4 * n);
        EXPECT_NEAR(got.parts, mean.item<double>(), 1e-6 * got.parts);
        EXPECT_DOUBLE_EQ(got.whole, norm * norm);
        EXPECT_EQ(got.count, n);
        EXPECT_EQ(got.samples, 4 * n);
      }
    });
}

TEST(grad_noise_scale_hook, sums_over_unequal_weights_make_shares_and_empty_ranks_no_part) {
  run_threads(3, [](Group g) {
    const int64_t mine = g.rank() == 1 ? 0 : 2 + g.rank();  // 2, 0, 4 samples
    at::Tensor p = torch::zeros({5}).requires_grad_();
    const at::Tensor sum = torch::arange(5, at::kFloat).add(1 + g.rank()).mul(double(mine));
    NoiseScaleHook parts;
    Reducer reducer({{"p", p}}, g, {{}, ReduceOp::sum, parts.hook()});
    reducer.open();
    p.mutable_grad() = sum.clone();
    reducer.ready(0);
    reducer.close();
    const double norm = std::sqrt(squares({p.grad()}, 1.0 / 6));
    const GradientParts got = parts.take(g, double(mine), 1.0 / 6, norm, 6);
    // The means of ranks 0 and 2, weighted by their shares.
    const double expected =
        2.0 / 6 * squares({torch::arange(5).add(1)}) + 4.0 / 6 * squares({torch::arange(5).add(3)});
    EXPECT_NEAR(got.parts, expected, 1e-5);
    EXPECT_EQ(got.count, 2);
  });
}

TEST(grad_noise_scale_hook, squares_of_every_float_type_and_of_many_elements) {
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    at::Tensor sum = torch::zeros({}, at::kDouble);
    add_squares(torch::full({200'001}, 0.5).to(type), sum);
    EXPECT_NEAR(sum.item<double>(), 200'001 / 4.0, 0.1);
    add_squares(torch::zeros({0}).to(type), sum);
    EXPECT_NEAR(sum.item<double>(), 200'001 / 4.0, 0.1);
  }
}

}  // namespace noise_scale_hook_test
