// SPDX-License-Identifier: Apache-2.0
// ZeRO-2: the optimizer's state and the gradients are split over ranks, any torch optimizer.
//   trireme run --nproc-per-node 2 own_loop_zero2
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>

#include "task.h"

int main() try {
  auto world = trireme::init_process_group();
  const Quadrants data;
  torch::manual_seed(1 + world.rank());  // each rank draws its own batches
  Net net;
  trireme::ShardedDataParallel zero(net, world, {.stage = trireme::ZeroStage::gradients});
  trireme::ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
                                                           torch::optim::AdamWOptions(1e-2));
  trireme::lr_scheduler::CosineAnnealingLR schedule(optimizer.torch_optimizer(), 60);

  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const auto mine = torch::randint(4096, {64}, torch::kLong);
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(
        net->forward(data.points.index_select(0, mine)), data.classes.index_select(0, mine));
    loss.backward();                      // each rank has its part of the mean gradient
    zero.sharded().clip_grad_norm_(1.0);  // by the norm of the whole: every rank calls it
    optimizer.step();                     // on this rank's part; then all have the new weights
    schedule.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  if (world.rank() == 0) std::printf("%d ranks, loss %.4f -> %.4f\n", world.size(), first, last);
  return last < first ? 0 : 1;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
