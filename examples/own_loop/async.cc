// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written while training goes on. Start it again: it goes on from the newest.
//   trireme run --nproc-per-node 2 own_loop_async RUN_DIR STEPS
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "task.h"

void train(trireme::Group world, const std::string& run_dir, int64_t steps) {
  Net net;
  trireme::DistributedDataParallel ddp(net, world);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  int64_t step = 0;
  const auto state = trireme::all_of(
      {trireme::state_of(net), trireme::state_of(optimizer, net), trireme::state_of("step", step)});
  if (trireme::load_if_any(run_dir, state, world) && world.rank() == 0)
    std::printf("resumed at step %" PRId64 "\n", step);

  const Quadrants data;
  torch::Tensor loss;
  trireme::AsyncSaver saver(run_dir, world);
  while (step < steps) {
    const auto mine = torch::arange(step * 256 + world.rank(), (step + 1) * 256, world.size());
    const auto rows = mine.remainder(data.points.size(0));
    optimizer.zero_grad();
    loss = torch::nn::functional::cross_entropy(net->forward(data.points.index_select(0, rows)),
                                                data.classes.index_select(0, rows));
    loss.backward();
    optimizer.step();
    if (++step % 5 == 0) {
      try {
        saver.save(step, state);  // every rank: returns when the state is copied
      } catch (const trireme::ResourceError& e) {
        if (world.rank() == 0) std::fprintf(stderr, "%s\n", e.what());  // of the save before, say
      }
    }
  }
  const std::string last = saver.wait();  // every rank: the last one is published
  if (loss.defined()) world.all_reduce(loss.detach(), trireme::ReduceOp::avg).wait();
  if (world.rank() == 0 && loss.defined())
    std::printf("saved %s\nstep %" PRId64 ", loss %.6f\n", last.c_str(), step, loss.item<double>());
}

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: own_loop_async RUN_DIR STEPS\n");
    return 2;
  }
  auto world = trireme::init_process_group();
  at::set_num_threads(1);
  torch::manual_seed(1);
  train(world, argv[1], std::atoll(argv[2]));
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
