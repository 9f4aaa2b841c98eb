// SPDX-License-Identifier: Apache-2.0
// ZeRO-3: parameters, too, are split over ranks. A block is whole only while it computes.
//   trireme run --nproc-per-node 2 own_loop_zero3
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>

#include "task.h"

struct DeepNetImpl : torch::nn::Module {
  explicit DeepNetImpl(trireme::FullySharded& sharded) {
    for (int i = 0; i < 4; ++i) {
      const std::string path = "block" + std::to_string(i);
      // Split before the next one is made: all blocks are never whole at once.
      blocks.push_back(trireme::fully_shard(std::make_shared<BlockImpl>(), sharded, path));
      register_module(path, blocks.back().module());
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(in(x));
    for (auto& block : blocks) x = block.forward(x);  // by its handle: that is what gathers it
    return out(x);
  }
  torch::nn::Linear in{register_module("in", torch::nn::Linear(2, 32))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(32, 4))};
  std::vector<trireme::FullyShardedModule<BlockImpl>> blocks;
};

int main() try {
  auto world = trireme::init_process_group();
  const Quadrants data;
  torch::manual_seed(1 + world.rank());  // each rank draws its own batches
  trireme::FullySharded sharded(world);
  auto net = std::make_shared<DeepNetImpl>(sharded);
  sharded.root(*net);  // what no block holds
  trireme::ShardedOptimizer<torch::optim::AdamW> optimizer(sharded,
                                                           torch::optim::AdamWOptions(1e-2));
  trireme::lr_scheduler::CosineAnnealingLR schedule(optimizer.torch_optimizer(), 60);

  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const auto mine = torch::randint(4096, {64}, torch::kLong);
    optimizer.zero_grad();
    auto scores = sharded.run([&](const torch::Tensor& x) { return net->forward(x); },
                              data.points.index_select(0, mine));
    auto loss = torch::nn::functional::cross_entropy(scores, data.classes.index_select(0, mine));
    loss.backward();
    sharded.clip_grad_norm_(1.0);
    optimizer.step();
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
