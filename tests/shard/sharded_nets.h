// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include "tests/grad/small_net.h"

// What tests of shard/ train, and how they compare.
namespace trireme::testing {

constexpr int64_t kRows = 16;  // of a step, over all ranks
constexpr int kSteps = 5;

/// Wide enough that a matrix is cut by shards.
inline Small wide(uint64_t seed = 1, at::ScalarType t = at::kDouble) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  Small m(64);
  m->to(t);
  return m;
}

inline at::Tensor rows_of_step(int step, at::ScalarType t = at::kDouble) {
  return (input(kRows) + 0.3 * step).sin().to(t);
}
inline at::Tensor part(const at::Tensor& all, const Group& g) {
  const int64_t n = all.size(0) / g.size();
  return all.narrow(0, n * g.rank(), n);
}
inline at::Tensor mean_loss(Small& net, const at::Tensor& x) {
  return net->forward(x).pow(2).sum(1).mean();
}

inline void expect_same_parameters(torch::nn::Module& got, torch::nn::Module& want,
                                   double tolerance) {
  const auto wanted = want.named_parameters();
  for (const auto& item : got.named_parameters()) {
    const double difference =
        (item.value().detach() - wanted[item.key()].detach()).abs().max().item<double>();
    expect(difference <= tolerance, item.key() + " differs by " + std::to_string(difference));
  }
}

}  // namespace trireme::testing
