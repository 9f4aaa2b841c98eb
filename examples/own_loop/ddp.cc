// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel with a schedule, clipping and a sampler, and what to do about errors.
//   trireme run --nproc-per-node 2 own_loop_ddp [EPOCHS]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>

#include "task.h"

void train(trireme::Group world, int epochs) {
  Net net;
  trireme::DistributedDataParallel ddp(net, world);  // all ranks begin with rank 0's weights
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  auto dataset = Quadrants().map(torch::data::transforms::Stack<>());
  trireme::DistributedSampler sampler(*dataset.size(), world.size(), world.rank());
  auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);
  const auto steps = static_cast<int64_t>(sampler.num_samples() + 63) / 64;
  trireme::lr_scheduler::OneCycleLR schedule(optimizer,
                                             {.max_lr = {0.2}, .total_steps = epochs * steps});

  for (int epoch = 0; epoch < epochs; ++epoch) {
    torch::Tensor total = torch::zeros({1});
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
      loss.backward();  // p.grad() is the mean over ranks when it returns
      trireme::clip_grad_norm_(net->parameters(), 1.0);  // the same on every rank
      optimizer.step();
      schedule.step();
      total += loss.detach() / steps;
    }
    world.all_reduce(total, trireme::ReduceOp::avg).wait();
    if (world.rank() == 0) {
      std::printf("epoch %d, loss %.4f, lr %.5f\n", epoch + 1, total.item<double>(), schedule.lr());
      std::fflush(stdout);
    }
  }
}

int main(int argc, char** argv) try {
  train(trireme::init_process_group(), argc > 1 ? std::atoi(argv[1]) : 5);
  return 0;
} catch (const trireme::PeerLost& e) {
  // The others stopped because one did: the group is finished. Restart all from a checkpoint.
  std::fprintf(stderr, "lost rank %d: %s\n", e.peer(), e.what());
  return 75;
} catch (const trireme::Mismatch& e) {
  std::fprintf(stderr, "ranks disagree, mend the program: %s\n", e.what());
  return 2;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
