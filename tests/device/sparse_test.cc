// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <mutex>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/tensor/device.h"
#include "trireme/trireme.h"

// Embeddings on a device. LibTorch 1.13 has sparse tensors on its own devices only, so that sparse
// gradients are refused on this one before the first step; dense ones have the CPU's bits.
namespace trireme::device_sparse_test {
namespace {

using trireme::testing::outcome_of;

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse)
      : words(register_module(
            "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 8).sparse(sparse)))),
        out(register_module("out", torch::nn::Linear(8, 3))) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters())
      p.copy_(at::arange(p.numel(), at::kFloat).view(p.sizes()).sin());
  }
  at::Tensor forward(const at::Tensor& ids) { return out(words(ids)); }
  torch::nn::Embedding words;
  torch::nn::Linear out;
};
TORCH_MODULE(Words);

Words words_on(at::Device device, bool sparse) {
  Words net(sparse);
  if (!device.is_cpu()) pretend::move_to(*net, device);
  return net;
}

at::Tensor loss_of(Words& net, const Group& g, int step, at::Device device) {
  const at::Tensor ids = (at::arange(6, at::kLong) * (step + 3) + g.rank() * 5).remainder(50);
  return net->forward(ids.to(device)).pow(2).sum();
}

using Train = std::function<void(Words&, Group, at::Device)>;

std::vector<at::Tensor> trained(const Train& train, bool on_device) {
  std::vector<at::Tensor> weights;
  const auto body = [&](Group g, at::Device device) {
    Words net = words_on(device, false);
    train(net, g, device);
    std::vector<at::Tensor> mine;
    for (const at::Tensor& p : net->parameters()) mine.push_back(p.detach().cpu().clone());
    if (g.rank() == 0) weights = mine;
  };
  if (on_device)
    pretend::run_on_devices(2, body);
  else
    run_threads(2, [&](Group g) { body(g, at::kCPU); });
  return weights;
}

void expect_the_cpus_bits(const Train& train) {
  const auto cpu = trained(train, false);
  pretend::for_some_seeds(2, [&] {
    const auto there = trained(train, true);
    ASSERT_EQ(there.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(there[i].equal(cpu[i])) << i;
  });
}

}  // namespace

TEST(device_sparse, a_dense_embedding_trains_to_the_cpus_bits) {
  expect_the_cpus_bits([](Words& net, Group g, at::Device device) {
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(net, g, step, device).backward();
      optimizer.step();
    }
  });
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    expect_the_cpus_bits([&](Words& net, Group g, at::Device device) {
      ShardedDataParallel zero(net, g, {.stage = stage});
      ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), torch::optim::SGDOptions(0.1));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        loss_of(net, g, step, device).backward();
        optimizer.step();
      }
    });
}

TEST(device_sparse, a_sparse_embedding_is_refused_before_the_first_step) {
  pretend::run_on_devices(2, [](Group g, at::Device device) {
    Words net = words_on(device, true);
    EXPECT_EQ(outcome_of([&] { DistributedDataParallel ddp(net, g); }),
              "UsageError: DistributedDataParallel: the gradient of 'words.weight' is sparse, and "
              "this LibTorch has no sparse tensors on " +
                  device.str() + ": make the embedding with sparse(false), or train it on the CPU");
    EXPECT_EQ(
        outcome_of([&] { ShardedDataParallel zero(net, g, {}); }),
        "UsageError: sharding: the gradient of 'words.weight' is sparse, and parts of such are "
        "not reduced: make the embedding with sparse(false), or take DistributedDataParallel");
  });
}

}  // namespace trireme::device_sparse_test
