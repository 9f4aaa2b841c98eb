// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/checkpoint/test_state.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "trireme/base/file.h"
#include "trireme/models/gpt.h"
#include "trireme/tensor/recompute/recompute.h"

// Parts of ours that are not for the CPU alone, on a device that is not it. More are in
// tests/device.
namespace trireme::pretend::parts_test {
namespace {

std::vector<double> gpt_losses(c10::Device where) {
  Gpt net({.layers = 2, .width = 32, .heads = 4, .context = 16, .vocab = 31, .dropout = 0}, 1);
  move_to(net, where);
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-2));
  const at::Tensor host = at::arange(4 * 17, at::kLong).remainder(29).view({4, 17});
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    const at::Tensor tokens = pinned(host).to(where, /*non_blocking=*/true);
    optimizer.zero_grad();
    const at::Tensor loss =
        net.loss_sum(net.forward(tokens.narrow(1, 0, 16)), tokens.narrow(1, 1, 16)) / 64;
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

}  // namespace

TEST(support_pretend_device_parts, recompute_gives_the_gradients_of_a_plain_run) {
  const at::Tensor weight = at::arange(64, at::kFloat).sin().view({8, 8}).to(device(1));
  const at::Tensor x = at::arange(16, at::kFloat).view({2, 8}).sin().to(device(1));
  const auto gradient = [&](bool again) {
    const at::Tensor w = weight.clone().requires_grad_();
    const auto block = [&](const at::Tensor& t) {
      return at::dropout(at::tanh(at::linear(t, w)), 0.5, true);
    };
    at::manual_seed(7);
    const at::Tensor y = again ? recompute(block, x, {w}) : block(x);
    y.pow(2).sum().backward();
    return w.grad().cpu();
  };
  EXPECT_TRUE(gradient(true).equal(gradient(false)));
}

TEST(support_pretend_device_parts, a_gpt_learns_as_on_the_cpu) {
  const std::vector<double> expected = gpt_losses(at::kCPU);
  EXPECT_LT(expected.back(), expected.front());
  for_some_seeds(2, [&] {
    const std::vector<double> got = gpt_losses(device());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-3) << i;
  });
}

TEST(support_pretend_device_parts, ranks_that_are_threads_have_a_device_each) {
  const std::vector<double> expected = gpt_losses(device());
  reseed(1);
  std::vector<std::vector<double>> got(kDevices);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kDevices; ++rank)
    ranks.emplace_back([&, rank] { got[static_cast<size_t>(rank)] = gpt_losses(device(rank)); });
  for (std::thread& rank : ranks) rank.join();
  reseed(0);
  for (const auto& losses : got) EXPECT_EQ(losses, expected);
}

TEST(support_pretend_device_parts, a_checkpoint_is_saved_from_the_device_and_loaded_into_it) {
  PrivateFolder run;
  test::TestState saved(100), loaded(-1);
  for (auto& [name, t] : saved.tensors) t = t.to(device(2));
  for (auto& [name, t] : loaded.tensors) t = t.to(device(3));
  save_step(run.path(), 100, std::ref(saved));
  load_step(run.path(), std::ref(loaded));
  for (const auto& [name, t] : saved.tensors) {
    EXPECT_EQ(loaded.tensors.at(name).device(), device(3)) << name;
    EXPECT_TRUE(loaded.tensors.at(name).cpu().equal(t.cpu())) << name;
  }
}

}  // namespace trireme::pretend::parts_test
