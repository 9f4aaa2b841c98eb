// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/gpu/stand_in.h"
#include "tests/grad/small_net.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/sync_batch_norm.h"
#include "trireme/models/gpt.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/recompute/recompute.h"

namespace layers_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

const at::Device kGpu(at::kCUDA, 0);

}  // namespace

TEST(gpu_layers, sync_batch_norm_is_batch_norm_over_all_ranks) {
  TRIREME_NEEDS_GPU();
  run_on_gpus(2, [](Group g, at::Device device) {
    const int64_t rows = 3;
    const at::Tensor all = at::arange(rows * g.size() * 4 * 5, at::kDouble)
                               .view({rows * g.size(), 4, 5})
                               .mul(0.37)
                               .sin();
    torch::nn::BatchNorm1d whole(4);
    whole->to(at::kDouble);
    at::Tensor x = all.clone().requires_grad_();
    at::Tensor y = whole->forward(x);
    y.pow(3).sum().backward();
    SyncBatchNorm mine(torch::nn::BatchNormOptions(4), g);
    mine->to(device, at::kDouble);
    at::Tensor part = all.narrow(0, rows * g.rank(), rows).to(device).requires_grad_();
    at::Tensor z = mine->forward(part);
    z.pow(3).sum().backward();
    const auto near = [](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
      expect(a.device().is_cuda() && a.cpu().allclose(b, 1e-9, 1e-9), what + " differs");
    };
    near(z.detach(), y.detach().narrow(0, rows * g.rank(), rows), "the output");
    near(part.grad(), x.grad().narrow(0, rows * g.rank(), rows), "the gradient");
    near(mine->named_buffers()["running_var"], whole->named_buffers()["running_var"],
         "the running variance");
  });
}

TEST(gpu_layers, autocast_computes_in_bfloat16_with_gradients_of_float32) {
  TRIREME_NEEDS_GPU();
  torch::nn::Linear net(8, 4);
  net->to(kGpu);
  const at::Tensor x = at::ones({2, 8}, at::TensorOptions(at::kFloat).device(kGpu));
  at::Tensor y;
  {
    const AutocastGuard bf16(at::kCUDA, at::kBFloat16);
    y = net->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    const AutocastGuard off(at::kCUDA, std::nullopt);
    EXPECT_EQ(net->forward(x).scalar_type(), at::kFloat);
  }
  y.to(at::kFloat).sum().backward();
  EXPECT_EQ(net->weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(net->weight.grad().cpu().equal(at::full({4, 8}, 2.0)));
  EXPECT_EQ(net->forward(x).scalar_type(), at::kFloat);
}

TEST(gpu_layers, recompute_gives_the_gradients_of_a_plain_run) {
  TRIREME_NEEDS_GPU();
  torch::nn::Linear net(8, 8);
  net->to(kGpu);
  const at::Tensor x = at::arange(16, at::kFloat).view({2, 8}).sin().to(kGpu);
  const auto block = [&](const at::Tensor& t) {
    return torch::dropout(torch::tanh(net->forward(t)), 0.5, true);
  };
  const auto gradient = [&](bool again, bool bf16) {
    net->zero_grad();
    torch::manual_seed(7);
    std::optional<AutocastGuard> autocast;
    if (bf16) autocast.emplace(at::kCUDA, at::kBFloat16);
    at::Tensor y = again ? recompute(block, x, net->parameters()) : block(x);
    autocast.reset();
    y.to(at::kFloat).pow(2).sum().backward();
    return net->weight.grad().cpu().clone();
  };
  for (const bool bf16 : {false, true})
    EXPECT_TRUE(gradient(true, bf16).allclose(gradient(false, bf16))) << bf16;
}

// The numbers do not depend on where they are used.
TEST(gpu_layers, keyed_dropout_drops_what_it_drops_on_the_cpu) {
  TRIREME_NEEDS_GPU();
  const auto dropped = [](at::Device device) {
    const RandomScope scope(RandomContext{3, 5, {2, 3, 4, 9, 8, 7}});
    const at::Tensor x = at::ones({6, 40}, at::TensorOptions(at::kFloat).device(device));
    return keyed_dropout(x, 0.3, "drop").cpu();
  };
  EXPECT_TRUE(dropped(kGpu).equal(dropped(at::kCPU)));
}

TEST(gpu_layers, a_gpt_learns_on_the_device_as_on_the_cpu) {
  TRIREME_NEEDS_GPU();
  const auto losses = [](at::Device device, bool bf16) {
    Gpt net({.layers = 2, .width = 32, .heads = 4, .context = 16, .vocab = 31, .dropout = 0}, 1);
    net.to(device);
    torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-2));
    const at::Tensor tokens = at::arange(4 * 17, at::kLong).remainder(29).view({4, 17}).to(device);
    std::vector<double> seen;
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      std::optional<AutocastGuard> autocast;
      if (bf16) autocast.emplace(device.type(), at::kBFloat16);
      at::Tensor loss =
          net.loss_sum(net.forward(tokens.narrow(1, 0, 16)), tokens.narrow(1, 1, 16)) / 64;
      autocast.reset();
      loss.backward();
      optimizer.step();
      seen.push_back(loss.item<double>());
    }
    return seen;
  };
  const auto here = losses(at::kCPU, false), there = losses(kGpu, false), half = losses(kGpu, true);
  EXPECT_LT(there.back(), there.front());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_NEAR(there[i], here[i], 1e-3);
    EXPECT_NEAR(half[i], here[i], 5e-2);
  }
}

}  // namespace layers_test
