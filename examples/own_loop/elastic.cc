// SPDX-License-Identifier: Apache-2.0
// Ranks that come and go: when one is lost the others keep their processes and go on with the same
// samples a step, and another takes its place. Kill a rank of it, and see.
//   trireme run --nproc-per-node 3 --max-restarts 3 own_loop_elastic [STEPS [MILLISECONDS_A_STEP]]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "task.h"

int main(int argc, char** argv) try {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 100;
  const std::chrono::milliseconds pause(argc > 2 ? std::atoi(argv[2]) : 0);
  constexpr int64_t kLeafSize = 16, kLeaves = 12;  // of each step, over all ranks
  at::set_num_threads(1);
  Quadrants data;
  torch::manual_seed(1);
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  int64_t step = 0;
  double samples = 0;  // that all ranks together have learnt from
  const trireme::GlobalBatch batches(
      {.dataset_size = 4096, .leaf_size = kLeafSize, .leaves = kLeaves});

  trireme::ElasticState state(
      trireme::all_of({trireme::state_of(net), trireme::state_of(optimizer, net),
                       trireme::state_of("step", step), trireme::state_of("samples", samples)}));
  const bool ended_here = trireme::elastic(state, [&](trireme::Group world) {
    trireme::DistributedDataParallel ddp(net, world, {.mean = trireme::GradientMean::of_weights});
    if (world.rank() == 0) {
      std::printf("%d ranks from step %" PRId64 "\n", world.size(), step + 1);
      std::fflush(stdout);
    }
    while (step < steps) {
      std::vector<int64_t> ids;
      for (const auto& leaf :
           batches.leaves_of(world.rank(), world.size(), step, trireme::Deal::uneven))
        ids.insert(ids.end(), leaf.ids.begin(), leaf.ids.end());
      optimizer.zero_grad();
      ddp.set_weight(static_cast<int64_t>(ids.size()));
      torch::nn::functional::cross_entropy(
          net->forward(data.points.index_select(0, torch::tensor(ids))),
          data.classes.index_select(0, torch::tensor(ids)),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
          .backward();
      optimizer.step();
      std::this_thread::sleep_for(pause);
      auto all = torch::tensor(static_cast<int64_t>(ids.size()));
      world.all_reduce(all).wait();
      samples += static_cast<double>(all.item<int64_t>());
      ++step;
      state.commit();  // to here all go back when a rank is lost
    }
    if (world.rank() == 0) {
      const auto loss =
          torch::nn::functional::cross_entropy(net->forward(data.points), data.classes);
      std::printf("step %" PRId64 ", %.0f samples, loss %.6f\n", step, samples,
                  loss.item<double>());
    }
  });
  if (!ended_here) std::fprintf(stderr, "the others have ended without this rank\n");
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
