// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/tensor/random/random.h"
#include "trireme/tensor/tied_tensors.h"

// Small things to learn, for tests of parameter servers: every batch is a function of its number.
namespace trireme::rpc_server_test {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t inputs = 12, int64_t width = 24) {
    a = register_module("a", torch::nn::Linear(inputs, width));
    b = register_module("b", torch::nn::Linear(width, width));
    c = register_module("c", torch::nn::Linear(width, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return c(torch::tanh(b(torch::tanh(a(x))))).squeeze(1);
  }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
};
TORCH_MODULE(Net);

inline Net net_of(uint64_t seed, int64_t inputs = 12) {
  Net net(inputs);
  torch::NoGradGuard no_grad;
  for (auto& [name, p] : named_parameters(*net)) normal_(p, seed * 1000 + name[0], 0, 0.3);
  return net;
}

struct Batch {
  at::Tensor x, y;
};
/// What a net of 12 inputs learns.
inline Batch batch_of(int64_t number, int64_t samples = 16) {
  at::Tensor x = torch::empty({samples, 12}), noise = torch::empty({samples});
  normal_(x, 77 + static_cast<uint64_t>(number), 0, 1);
  normal_(noise, 1'000'077 + static_cast<uint64_t>(number), 0, 0.7);
  return {x, torch::sin(x.select(1, 0)) + 0.5 * x.select(1, 1) - 0.5 * x.select(1, 2) + noise};
}
inline at::Tensor loss_of(Net& net, const Batch& batch) {
  return (net->forward(batch.x) - batch.y).pow(2).mean();
}
/// One that nobody trains on.
inline double held_out(Net& net) {
  torch::NoGradGuard no_grad;
  return loss_of(net, batch_of(-5, 2048)).item<double>();
}

/// All elements, one behind the other.
inline at::Tensor flat(const torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (auto& [name, p] : named_parameters(module))
    all.push_back(p.detach().to(at::kDouble).view(-1));
  return at::cat(all);
}

inline void drop_gradients(const torch::nn::Module& module) {
  for (auto& [name, p] : named_parameters(module)) {
    at::Tensor parameter = p;
    parameter.mutable_grad() = at::Tensor();
  }
}

}  // namespace trireme::rpc_server_test
