// SPDX-License-Identifier: Apache-2.0
// Writes what LibTorch for C++ writes: tests/interop/fixtures/cpp_*.pt, by LibTorch 1.13.1. In that
// folder:
//   g++ -std=c++17 ../make_fixtures.cc -I/usr/include/torch/csrc/api/include -ltorch -ltorch_cpu
//     -lc10 -o /tmp/make_fixtures && /tmp/make_fixtures
#include <torch/torch.h>

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3),
                            torch::nn::Linear(3, 1));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  const torch::Tensor input = torch::ones({4, 2}) * torch::arange(4).view({4, 1});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    net->forward(input).square().mean().backward();
    optimizer.step();
  }
  torch::save(net, "cpp_module.pt");
  torch::save(optimizer, "cpp_optimizer.pt");
  torch::save(std::vector<torch::Tensor>{torch::arange(3), torch::eye(2).t()}, "cpp_list.pt");
  torch::save(torch::arange(4.0), "cpp_tensor.pt");
}
