// SPDX-License-Identifier: Apache-2.0
// Mixed precision: autocast around the forward, and a loss scale that all ranks share. bfloat16
// needs no scale; float16 (on a GPU) does, and the loop is the same.
//   trireme run --nproc-per-node 2 own_loop_amp
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>

#include "task.h"

int main() try {
  auto world = trireme::init_process_group();
  const Quadrants data;
  Net net;
  trireme::DistributedDataParallel ddp(net, world);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  trireme::GradScaler scaler({.initial = 1024}, world);
  trireme::NamedTensors parameters;
  for (const auto& p : net->named_parameters()) parameters.push_back({p.key(), p.value()});

  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const auto mine = torch::randint(4096, {64}, torch::kLong);
    optimizer.zero_grad();
    torch::Tensor loss;
    {
      trireme::AutocastGuard bf16(torch::kCPU, torch::kBFloat16);
      auto scores = net->forward(data.points.index_select(0, mine));
      loss = torch::nn::functional::cross_entropy(scores.to(torch::kFloat),
                                                  data.classes.index_select(0, mine));
    }
    scaler.scale(loss).backward();
    const auto verdict = scaler.unscale_(parameters);  // one decision of all ranks
    if (verdict.finite) {
      trireme::clip_grad_norm_(net->parameters(), 1.0);
      optimizer.step();
    }
    scaler.update(verdict);
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  if (world.rank() == 0)
    std::printf("%d ranks, loss %.4f -> %.4f, scale %g\n", world.size(), first, last,
                scaler.scale());
  return last < first ? 0 : 1;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
