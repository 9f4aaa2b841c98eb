// SPDX-License-Identifier: Apache-2.0
// DdpOptions::leaves: reproducible mode in somebody's own loop.
#include "trireme/grad/leaf_backwards.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adam.h>

#include <cstring>
#include <mutex>
#include <optional>

#include "tests/grad/small_net.h"
#include "trireme/comm/start/run.h"
#include "trireme/data/global_batch.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/cast_hook.h"
#include "trireme/grad/join.h"
#include "trireme/layers/dropout.h"
#include "trireme/tensor/random/random.h"

namespace leaf_backwards_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int kLeaves = 8;  // of all ranks
constexpr int64_t kLeafSize = 3, kSamples = 96;

struct DroppingImpl : torch::nn::Module {
  DroppingImpl() {
    a = register_module("a", torch::nn::Linear(9, 33));
    drop = register_module("drop", Dropout(0.3));
    b = register_module("b", torch::nn::Linear(33, 3));
    name_dropouts(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) { return b(drop(torch::tanh(a(x)))); }
  torch::nn::Linear a{nullptr}, b{nullptr};
  Dropout drop{nullptr};
};
TORCH_MODULE(Dropping);

Dropping seeded() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  torch::manual_seed(5);
  return Dropping();
}

/// All parameters after five steps of Adam, as rank 0 has them.
at::Tensor trained(int ranks, bool leaves) {
  at::Tensor result;
  run_threads(ranks, [&](Group g) {
    Dropping net = seeded();
    const int mine = kLeaves / g.size();
    DistributedDataParallel ddp(
        net, g,
        {.bucket_bytes = 512, .mean = GradientMean::of_weights, .leaves = leaves ? mine : 0});
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
    const GlobalBatch batches(
        {.dataset_size = kSamples, .leaf_size = kLeafSize, .leaves = kLeaves, .seed = 3});
    const at::Tensor data = input(kSamples, at::kFloat);
    for (int step = 0; step < 5; ++step) {
      ddp.zero_grad();
      for (const Leaf& leaf : batches.leaves_of(g.rank(), g.size(), step)) {
        RandomScope random({1, step, leaf.ids});
        std::optional<DistributedDataParallel::NoSync> accumulating;
        if (!leaves && leaf.index % mine != mine - 1) accumulating.emplace(ddp);
        ddp.set_weight(kLeafSize);
        net->forward(data.index_select(0, torch::tensor(leaf.ids))).pow(2).sum().backward();
      }
      optimizer.step();
    }
    std::vector<at::Tensor> all;
    for (const auto& p : net->parameters()) all.push_back(p.detach().flatten());
    if (g.rank() == 0) result = torch::cat(all).clone();
  });
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

}  // namespace

TEST(grad_leaf_backwards, weights_have_the_same_bits_on_1_2_4_and_8_ranks) {
  const at::Tensor one = trained(1, true);
  for (int ranks : {2, 4, 8}) EXPECT_TRUE(same_bits(one, trained(ranks, true))) << ranks;
}

// Without leaves a rank adds its four micro-batches one after the other, so the test above can
// fail.
TEST(grad_leaf_backwards, are_what_makes_the_bits_equal) {
  const at::Tensor one = trained(1, true), plain = trained(2, false);
  EXPECT_FALSE(same_bits(one, plain));
  EXPECT_TRUE(torch::allclose(one, plain, 1e-4, 1e-5));
}

TEST(grad_leaf_backwards, a_round_is_as_many_backwards_as_there_are_leaves) {
  run_threads(2, [](Group g) {
    torch::nn::Linear net = [] {
      static std::mutex mutex;
      std::lock_guard lock(mutex);
      torch::manual_seed(2);
      return torch::nn::Linear(9, 2);
    }();
    DistributedDataParallel ddp(net, g, {.leaves = 2});
    const at::Tensor x = input(4, at::kFloat).narrow(0, 2 * g.rank(), 2);
    for (int64_t round = 1; round <= 3; ++round) {
      ddp.zero_grad();
      net->forward(x.narrow(0, 0, 1)).sum().backward();
      expect(!net->weight.grad().defined(), "a gradient before the round's last leaf");
      expect(ddp.reducer().stats().rounds == round - 1, "reduced too early");
      net->forward(x.narrow(0, 1, 1)).sum().backward();
      expect(ddp.reducer().stats().rounds == round, "not reduced by the last leaf");
      // The mean over ranks of the sums over leaves.
      const at::Tensor want = input(4, at::kFloat).sum(0).div(2).expand({2, 9});
      expect(torch::allclose(net->weight.grad(), want, 1e-5, 1e-6), "another gradient");
    }
  });
}

TEST(grad_leaf_backwards, a_parameter_that_some_leaves_do_not_use_is_counted_where_it_is) {
  run_threads(2, [](Group g) {
    torch::nn::Sequential net(torch::nn::Linear(9, 9), torch::nn::Linear(9, 1));
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true, .leaves = 2});
    const at::Tensor x = torch::ones({1, 9});
    auto& last = net[1]->as<torch::nn::LinearImpl>()->weight;
    last.requires_grad_(true);
    ddp.zero_grad();
    // Rank 0 uses the last layer in its first leaf, rank 1 in none.
    if (g.rank() == 0)
      net->forward(x).sum().backward();
    else
      net[0]->as<torch::nn::LinearImpl>()->forward(x).sum().backward();
    net[0]->as<torch::nn::LinearImpl>()->forward(x).sum().backward();
    at::Tensor mean = last.grad().clone(), first = mean.clone();
    g.broadcast(first, 0).wait();
    expect(mean.defined() && mean.abs().sum().item<double>() > 0, "no gradient");
    expect(torch::equal(mean, first), "ranks differ");
    const at::Tensor hidden = net[0]->as<torch::nn::LinearImpl>()->forward(x).detach();
    expect(torch::allclose(mean, hidden / 2, 1e-5, 1e-6), "not the mean over both ranks");
  });
}

TEST(grad_leaf_backwards, a_backward_that_broke_off_is_forgotten_by_reset) {
  run_threads(2, [](Group g) {
    torch::nn::Linear net(9, 2);
    DistributedDataParallel ddp(net, g, {.leaves = 2});
    const at::Tensor x = torch::ones({1, 9});
    ddp.zero_grad();
    net->forward(x).sum().backward();
    ddp.reset();
    ddp.zero_grad();
    for (int i = 0; i < 2; ++i) net->forward(x).sum().backward();
    expect(torch::allclose(net->weight.grad(), torch::full({2, 9}, 2.f)), "another gradient");
  });
}

namespace {

/// What DistributedDataParallel says of a module under leaves, on one of two ranks.
std::string refusal(const std::function<void(Group)>& body, int ranks = 2) {
  return what_ranks_throw(ranks, body).at(0);
}

void expect_refused(const std::string& said, const std::string& words) {
  EXPECT_EQ(said.rfind("UsageError", 0), 0u) << said;
  EXPECT_NE(said.find(words), std::string::npos) << said;
}

}  // namespace

TEST(grad_leaf_backwards, what_cannot_keep_the_bits_is_refused_by_name) {
  const auto with = [](auto make, DdpOptions o) {
    return refusal([=](Group g) {
      auto net = make();
      DistributedDataParallel ddp(*net, g, o);
    });
  };
  const auto linear = [] { return std::make_shared<torch::nn::LinearImpl>(4, 2); };
  expect_refused(with(linear, {.leaves = 3}), "3 leaves on each of 2 ranks");
  expect_refused(with(linear, {.hook = cast_hook(at::kBFloat16), .leaves = 2}), "DdpOptions::hook");
  expect_refused(with(linear, {.static_graph = true, .leaves = 2}), "static_graph");
  expect_refused(with(linear, {.delayed = {"*"}, .leaves = 2}), "delayed");
  expect_refused(
      with([] { return std::make_shared<torch::nn::BatchNorm1dImpl>(4); }, {.leaves = 2}),
      "'running_mean'");
  expect_refused(
      with(
          [] {
            return torch::nn::Sequential(torch::nn::Linear(4, 2), torch::nn::Dropout(.1)).ptr();
          },
          {.leaves = 2}),
      "'1' is a torch::nn::Dropout");
  expect_refused(with(
                     [] {
                       return std::make_shared<torch::nn::EmbeddingImpl>(
                           torch::nn::EmbeddingOptions(4, 2).sparse(true));
                     },
                     {.leaves = 2}),
                 "'weight' has sparse gradients");
  expect_refused(with(
                     [=] {
                       auto net = linear();
                       net->to(at::kBFloat16);
                       return net;
                     },
                     {.leaves = 2}),
                 "'weight' is BFloat16");
  expect_refused(refusal(
                     [=](Group g) {
                       auto net = linear();
                       DistributedDataParallel ddp(*net, g, {.leaves = 2});
                     },
                     3),
                 "each of 3 ranks");
}

TEST(grad_leaf_backwards, a_loop_that_would_lose_gradients_is_told_so) {
  const auto loop = [](auto body) {
    return refusal([=](Group g) {
      torch::nn::Linear net(4, 2);
      DistributedDataParallel ddp(net, g, {.leaves = 2});
      auto backward = [&] { net->forward(torch::ones({1, 4})).sum().backward(); };
      body(ddp, *net, backward);
    });
  };
  expect_refused(loop([](auto& ddp, auto&, auto) { auto guard = ddp.no_sync(); }), "no_sync()");
  expect_refused(loop([](auto& ddp, auto&, auto backward) {
                   ddp.zero_grad();
                   backward();
                   ddp.zero_grad();  // the step of a loop with half as many backwards
                 }),
                 "after 1 of the 2 backwards");
  // The optimizer's zero_grad() of LibTorch 1.13 leaves zeros in the bucket.
  expect_refused(loop([](auto& ddp, auto& net, auto backward) {
                   ddp.zero_grad();
                   backward();
                   backward();
                   for (auto& p : net.parameters()) p.mutable_grad().zero_();
                   backward();
                 }),
                 "zero_grad() of the DistributedDataParallel");
  expect_refused(loop([](auto& ddp, auto&, auto backward) { join({&ddp}, [&] { backward(); }); }),
                 "join()");
}

}  // namespace leaf_backwards_test
