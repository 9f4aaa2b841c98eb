// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/recompute/recompute.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"

namespace recompute_test {

using namespace trireme;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module("b" + std::to_string(i), torch::nn::Linear(5, 5)));
      auto filled = torch::arange(25, at::kDouble).add(i).sin().view({5, 5});
      blocks.back()->weight.set_data(filled);
      blocks.back()->bias.set_data(filled[0].clone());
    }
    spare = register_parameter("spare", torch::ones({2}, at::kDouble));
  }
  at::Tensor forward(at::Tensor x, bool again) {
    for (auto& b : blocks) {
      auto f = [b](const at::Tensor& t) mutable { return b->forward(t).tanh(); };
      auto declared = b->parameters();
      declared.push_back(spare);  // which no block uses
      x = again ? recompute(f, x, declared) : f(x);
    }
    return x;
  }
  std::vector<torch::nn::Linear> blocks;
  at::Tensor spare;
};
TORCH_MODULE(Net);

}  // namespace

TEST(grad_recompute, ddp_reduces_the_same_bits_with_and_without_it) {
  for (int n : {1, 2, 3})
    run_threads(n, [](Group g) {
      Net plain, again;
      const DdpOptions options{.find_unused_parameters = true};
      DistributedDataParallel one(plain, g, options), two(again, g, options);
      auto x = torch::arange(20, at::kDouble).add(g.rank()).cos().view({4, 5});
      for (int step = 0; step < 3; ++step) {
        plain->zero_grad();
        again->zero_grad();
        plain->forward(x, false).pow(2).sum().backward();
        again->forward(x, true).pow(2).sum().backward();
        for (auto& p : plain->named_parameters()) {
          auto a = p.value().grad(), b = again->named_parameters()[p.key()].grad();
          trireme::check<Error>(a.defined() == b.defined() && (!a.defined() || a.equal(b)),
                                "{} differs", p.key());
        }
      }
    });
}

}  // namespace recompute_test
