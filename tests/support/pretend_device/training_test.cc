// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"

namespace trireme::pretend::training_test {
namespace {

namespace nn = torch::nn;

at::Tensor numbers(at::IntArrayRef sizes, double step) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).mul(step).sin().mul(0.3).view(sizes);
}

struct Result {
  std::vector<at::Tensor> losses, weights;
};

void expect_same_bits(const Result& got, const Result& expected) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  ASSERT_EQ(got.weights.size(), expected.weights.size());
  for (size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_TRUE(got.losses[i].equal(expected.losses[i])) << "loss " << i;
  for (size_t i = 0; i < got.weights.size(); ++i)
    EXPECT_TRUE(got.weights[i].equal(expected.weights[i])) << "weight " << i;
}

// Three steps on batches that come from pinned memory, as a loader's do.
template <class Optimizer, class Options>
Result train_mlp(c10::Device where, const Options& options) {
  at::manual_seed(1);
  nn::Sequential net(nn::Linear(7, 32), nn::GELU(), nn::LayerNorm(nn::LayerNormOptions({32})),
                     nn::Linear(32, 5));
  move_to(*net, where);
  Optimizer optimizer(net->parameters(), options);
  Result result;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = pinned(numbers({16, 7}, 0.1 + step)).to(where, /*non_blocking=*/true);
    const at::Tensor y = pinned(at::arange(16).remainder(5)).to(where, true);
    optimizer.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(net->forward(x), y);
    loss.backward();
    optimizer.step();
    result.losses.push_back(loss.detach().cpu());
  }
  for (const at::Tensor& p : net->parameters()) result.weights.push_back(p.detach().cpu());
  return result;
}

// One block of a decoder and its loss, of ATen's operators.
class Transformer {
 public:
  explicit Transformer(c10::Device where) {
    const auto make = [&](const char* name, at::IntArrayRef sizes) {
      weights_[name] = numbers(sizes, 0.01 * static_cast<double>(weights_.size() + 1))
                           .to(where)
                           .requires_grad_();
    };
    make("embedding", {kVocabulary, kWidth});
    make("qkv", {3 * kWidth, kWidth});
    make("qkv_bias", {3 * kWidth});
    make("out", {kWidth, kWidth});
    make("gain", {kWidth});
    make("shift", {kWidth});
    make("up", {4 * kWidth, kWidth});
    make("down", {kWidth, 4 * kWidth});
  }
  at::Tensor loss(const at::Tensor& tokens) {
    const int64_t batch = tokens.size(0), length = tokens.size(1) - 1;
    const at::Tensor input = tokens.narrow(1, 0, length), target = tokens.narrow(1, 1, length);
    at::Tensor x = at::embedding(weights_["embedding"], input);
    const at::Tensor qkv = at::linear(norm(x), weights_["qkv"], weights_["qkv_bias"]);
    std::vector<at::Tensor> heads;
    for (const at::Tensor& part : qkv.split(kWidth, 2))
      heads.push_back(part.view({batch, length, kHeads, kWidth / kHeads}).transpose(1, 2));
    const at::Tensor future = at::ones({length, length}, tokens.options().dtype(at::kBool)).triu(1);
    const at::Tensor scores =
        (heads[0].matmul(heads[1].transpose(2, 3)) * 0.5).masked_fill(future, -1e9);
    const at::Tensor mixed = at::dropout(at::softmax(scores, -1), 0.1, true).matmul(heads[2]);
    x = x + at::linear(mixed.transpose(1, 2).reshape({batch, length, kWidth}), weights_["out"]);
    x = x + at::linear(at::gelu(at::linear(norm(x), weights_["up"])), weights_["down"]);
    const at::Tensor logits = at::linear(norm(x), weights_["embedding"]);
    return at::cross_entropy_loss(logits.view({-1, kVocabulary}), target.reshape({-1}));
  }
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, weight] : weights_) all.push_back(weight);
    return all;
  }

 private:
  static constexpr int64_t kVocabulary = 31, kWidth = 16, kHeads = 4;
  at::Tensor norm(const at::Tensor& x) {
    return at::layer_norm(x, {kWidth}, weights_["gain"] + 1, weights_["shift"]);
  }
  std::map<std::string, at::Tensor> weights_;
};

Result train_transformer(c10::Device where) {
  at::manual_seed(2);
  Transformer model(where);
  Result result;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor tokens =
        pinned((at::arange(4 * 13) * (step + 3)).remainder(31).view({4, 13})).to(where, true);
    const at::Tensor loss = model.loss(tokens);
    loss.backward();
    for (at::Tensor& weight : result.weights = model.weights()) {
      const at::NoGradGuard no_grad;
      weight.sub_(weight.grad(), 0.5);
      weight.mutable_grad().reset();
    }
    result.losses.push_back(loss.detach().cpu());
  }
  for (at::Tensor& weight : result.weights) weight = weight.detach().cpu();
  return result;
}

}  // namespace

TEST(support_pretend_device_training, of_an_mlp_by_sgd_gives_the_cpus_bits) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  const Result expected = train_mlp<torch::optim::SGD>(at::kCPU, options);
  EXPECT_FALSE(expected.losses[0].equal(expected.losses[2]));
  for_some_seeds(
      5, [&] { expect_same_bits(train_mlp<torch::optim::SGD>(device(), options), expected); });
}

TEST(support_pretend_device_training, of_an_mlp_by_adamw_gives_the_cpus_bits) {
  const torch::optim::AdamWOptions options(0.01);
  const Result expected = train_mlp<torch::optim::AdamW>(at::kCPU, options);
  for_some_seeds(
      2, [&] { expect_same_bits(train_mlp<torch::optim::AdamW>(device(3), options), expected); });
}

TEST(support_pretend_device_training, of_a_transformer_gives_the_cpus_bits) {
  const Result expected = train_transformer(at::kCPU);
  EXPECT_FALSE(expected.losses[0].equal(expected.losses[2]));
  for_some_seeds(5, [&] { expect_same_bits(train_transformer(device(1)), expected); });
}

TEST(support_pretend_device_training, of_convolutions_gives_the_cpus_bits) {
  const auto gradients = [](c10::Device where) {
    const at::Tensor image = numbers({2, 3, 9, 9}, 0.3).to(where).requires_grad_();
    const at::Tensor kernel = numbers({4, 3, 3, 3}, 0.7).to(where).requires_grad_();
    const at::Tensor bias = numbers({4}, 0.9).to(where).requires_grad_();
    const at::Tensor out = at::conv2d(image, kernel, bias, 2, 1);
    at::batch_norm(at::max_pool2d(out, 2), {}, {}, {}, {}, true, 0.1, 1e-5, false)
        .pow(2)
        .sum()
        .backward();
    return std::vector<at::Tensor>{out.detach().cpu(), image.grad().cpu(), kernel.grad().cpu(),
                                   bias.grad().cpu()};
  };
  const auto got = gradients(device()), expected = gradients(at::kCPU);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
}

TEST(support_pretend_device_training, gives_a_gradients_gradient) {
  const auto second = [](c10::Device where) {
    const at::Tensor x = numbers({5}, 0.7).to(where).requires_grad_();
    const auto first = torch::autograd::grad({x.tanh().pow(3).sum()}, {x}, {}, true, true);
    return torch::autograd::grad({first[0].sum()}, {x})[0].cpu();
  };
  EXPECT_TRUE(second(device()).equal(second(at::kCPU)));
}

TEST(support_pretend_device_training, runs_hooks_on_the_device_of_their_gradient) {
  at::Tensor x = numbers({5}, 0.7).to(device(2)).requires_grad_();
  c10::Device current(at::kCPU);
  x.register_hook([&](const at::Tensor& gradient) {
    current = current_device();
    return gradient * 2;
  });
  x.sum().backward();
  EXPECT_EQ(current, device(2));
  EXPECT_TRUE(x.grad().cpu().equal(at::full({5}, 2.f)));
}

TEST(support_pretend_device_training, leaves_no_memory_behind) {
  train_transformer(device(1));
  synchronize();
  const size_t before = memory_counts(1).allocated;
  train_transformer(device(1));
  synchronize();
  EXPECT_EQ(memory_counts(1).allocated, before);
}

}  // namespace trireme::pretend::training_test
