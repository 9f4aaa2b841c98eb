// SPDX-License-Identifier: Apache-2.0
// Reproducible mode: the weights at the end have the same bits on 1, 2, 4 or 8 ranks.
//   trireme run --nproc-per-node 4 own_loop_reproducible
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cinttypes>
#include <cstdio>

#include "task.h"

struct DroppingNetImpl : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(2, 32))};
  trireme::Dropout drop{register_module("drop", trireme::Dropout(0.1))};  // keyed by sample
  torch::nn::Linear out{register_module("out", torch::nn::Linear(32, 4))};
  torch::Tensor forward(const torch::Tensor& x) { return out(drop(torch::relu(in(x)))); }
};
TORCH_MODULE(DroppingNet);

int main() try {
  constexpr int kLeaves = 8, kLeafSize = 16;  // of each step, over all ranks
  auto world = trireme::init_process_group();
  at::set_num_threads(1);  // how a matrix product adds depends on it
  Quadrants data;
  torch::manual_seed(1);
  DroppingNet net;
  trireme::name_dropouts(*net);
  trireme::DistributedDataParallel ddp(
      net, world, {.mean = trireme::GradientMean::of_weights, .leaves = kLeaves / world.size()});
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  const trireme::GlobalBatch batches(
      {.dataset_size = 4096, .leaf_size = kLeafSize, .leaves = kLeaves});

  for (int64_t step = 0; step < 100; ++step) {
    ddp.zero_grad();  // to none: each leaf's gradient is a tensor of its own
    for (const auto& leaf : batches.leaves_of(world.rank(), world.size(), step)) {
      trireme::RandomScope random({.seed = 1, .step = step, .samples = leaf.ids});
      const auto ids = torch::tensor(leaf.ids);
      auto losses = torch::nn::functional::cross_entropy(
          net->forward(data.points.index_select(0, ids)), data.classes.index_select(0, ids),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      ddp.set_weight(kLeafSize);
      losses.backward();  // the last one of the step reduces
    }
    optimizer.step();
  }

  uint64_t bits = 14695981039346656037u;  // FNV-1a of all weights
  for (const auto& p : net->parameters()) {
    const auto bytes = p.detach().contiguous().view(torch::kUInt8).flatten();
    for (int64_t i = 0; i < bytes.numel(); ++i)
      bits = (bits ^ bytes.data_ptr<uint8_t>()[i]) * 1099511628211u;
  }
  if (world.rank() == 0) std::printf("weights %016" PRIx64 "\n", bits);
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
