// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/grad/small_net.h"

// A language model in small: the output head is the embedding, and one layer is at two paths.
namespace trireme::testing {

struct TiedNetImpl : torch::nn::Module {
  static constexpr int64_t kTokens = 37, kWidth = 12;
  /// `tied` false: the head is a copy, and each path has a layer of its own.
  explicit TiedNetImpl(bool tied = true)
      : emb(register_module("emb", torch::nn::Embedding(kTokens, kWidth))),
        a(register_module("a", torch::nn::Linear(kWidth, kWidth))),
        first(register_module("first", torch::nn::Linear(kWidth, kWidth))),
        b(register_module("b", torch::nn::Linear(kWidth, kWidth))),
        again(tied ? first : torch::nn::Linear(kWidth, kWidth)) {
    register_module("again", again.ptr());
    head = register_parameter("head", tied ? emb->weight : emb->weight.detach().clone());
    scale = register_buffer("scale", torch::ones({1}));
    register_buffer("scale_again", tied ? scale : scale.clone());
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor h = torch::tanh(a(emb(tokens).mean(1)));
    h = torch::tanh(b(torch::tanh(first(h))));
    return torch::matmul(torch::tanh(again(h)) * scale.to(h.scalar_type()), head.t());
  }
  torch::nn::Embedding emb;
  torch::nn::Linear a, first, b, again;
  at::Tensor head, scale;
};
TORCH_MODULE(TiedNet);

inline TiedNet tied_net(uint64_t seed = 1, bool tied = true, at::ScalarType t = at::kDouble) {
  static std::mutex mutex;  // LibTorch's default generator is one for all threads
  std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  TiedNet net(tied);
  net->to(t);
  return net;
}

/// Rows of tokens, another for each step.
inline at::Tensor tokens(int64_t rows, int step = 0) {
  const at::Tensor n = torch::arange(rows * 5, at::kLong).view({rows, 5});
  return (n * n + 7 * n + 3 * step).remainder(TiedNetImpl::kTokens);
}
/// This rank's part of a batch.
inline at::Tensor rows_of(const at::Tensor& whole, const Group& g) {
  const int64_t n = whole.size(0) / g.size();
  return whole.narrow(0, n * g.rank(), n);
}
inline at::Tensor mean_loss(TiedNet& net, const at::Tensor& x) {
  return net->forward(x).pow(2).sum(1).mean();
}

/// Each tensor once: PyTorch's list in Python, which LibTorch's is not.
inline std::vector<at::Tensor> each_once(const torch::nn::Module& m) {
  std::vector<at::Tensor> list;
  std::set<at::TensorImpl*> seen;
  for (const auto& p : m.parameters())
    if (seen.insert(p.unsafeGetTensorImpl()).second) list.push_back(p);
  return list;
}

/// Every name has the values that it has in the other, and is tied as it was made.
inline void expect_tied_as(TiedNet& got, TiedNet& want, double tolerance,
                           const std::string& where = "") {
  const auto wanted = want->named_parameters();
  for (const auto& item : got->named_parameters()) {
    const at::Tensor as = wanted[item.key()].detach();
    const double difference = (item.value().detach() - as).abs().max().item<double>();
    const double scale = std::max(1.0, as.abs().max().item<double>());
    expect(difference <= tolerance * scale,
           fmt::format("{}{} differs by {:g}, of {:g}", where, item.key(), difference, scale));
  }
  const auto mine = got->named_parameters();
  expect(mine["emb.weight"].is_same(mine["head"]) &&
             mine["first.weight"].is_same(mine["again.weight"]) &&
             mine["emb.weight"].data_ptr() == got->head.data_ptr(),
         where + "no longer tied");
}

}  // namespace trireme::testing
