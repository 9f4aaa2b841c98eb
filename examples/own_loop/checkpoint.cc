// SPDX-License-Identifier: Apache-2.0
// Save and resume under DDP, ZeRO-2 and ZeRO-3. Start it again, on as many ranks or others, in this
// way or another: it goes on from the newest step of RUN_DIR, in the middle of an epoch.
//   trireme run --nproc-per-node 2 own_loop_checkpoint ddp|zero2|zero3 RUN_DIR STEPS
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "task.h"

using AdamW = torch::optim::AdamW;
using Batch = torch::data::Example<>;

struct Arguments {
  std::string mode, run_dir;
  int64_t steps;
};

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(scores, target);
}

// The loop around any of them. `parts` is the state of the model, the optimizer and the schedule.
void train(trireme::Group world, const Arguments& a, const trireme::StateWalk& parts,
           const std::function<torch::Tensor(const Batch&)>& train_on) {
  const auto ranks = static_cast<size_t>(world.size());
  auto dataset = Quadrants().map(torch::data::transforms::Stack<>());
  trireme::DistributedSampler sampler(*dataset.size(), ranks, static_cast<size_t>(world.rank()));
  auto loader = torch::data::make_data_loader(
      std::move(dataset), sampler, torch::data::DataLoaderOptions(256 / ranks).workers(2));
  int64_t step = 0;
  torch::Tensor loss = torch::zeros({});

  const auto state =
      trireme::all_of({parts, trireme::state_of(sampler), trireme::state_of("step", step)});
  if (const auto saved = trireme::load_if_any(a.run_dir, state, world); saved && world.rank() == 0)
    std::printf("resumed at step %" PRId64 " of %" PRId64 " ranks\n", saved->step, saved->world);

  while (step < a.steps)
    for (auto& batch : trireme::counted(*loader, sampler)) {  // counts what the loop has taken
      loss = train_on(batch);
      if (++step % 10 == 0) trireme::save(a.run_dir, step, state, world);  // every rank calls it
      if (step == a.steps) break;
    }
  world.all_reduce(loss, trireme::ReduceOp::avg).wait();
  if (world.rank() == 0) std::printf("step %" PRId64 ", loss %.6f\n", step, loss.item<double>());
}

void print_bits(const trireme::Group& world, const torch::nn::Module& module) {
  uint64_t bits = 14695981039346656037u;  // FNV-1a of all weights
  for (const auto& p : module.parameters()) {
    const auto bytes = p.detach().contiguous().view(torch::kUInt8).flatten();
    for (int64_t i = 0; i < bytes.numel(); ++i)
      bits = (bits ^ bytes.data_ptr<uint8_t>()[i]) * 1099511628211u;
  }
  if (world.rank() == 0) std::printf("weights %016" PRIx64 "\n", bits);
}

void ddp(trireme::Group world, const Arguments& a) {
  Net net;
  trireme::DistributedDataParallel ddp(net, world);
  AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  trireme::lr_scheduler::CosineAnnealingLR schedule(optimizer, 100);
  train(world, a,
        trireme::all_of({trireme::state_of(net), trireme::state_of(optimizer, net),
                         trireme::state_of(schedule)}),
        [&](const Batch& batch) {
          optimizer.zero_grad();
          auto loss = loss_of(net->forward(batch.data), batch.target);
          loss.backward();
          optimizer.step();
          schedule.step();
          return loss.detach();
        });
  print_bits(world, *net);
}

void zero2(trireme::Group world, const Arguments& a) {
  Net net;
  trireme::ShardedDataParallel zero(net, world, {.stage = trireme::ZeroStage::gradients});
  trireme::ShardedOptimizer<AdamW> optimizer(zero.sharded(), torch::optim::AdamWOptions(1e-2));
  trireme::lr_scheduler::CosineAnnealingLR schedule(optimizer.torch_optimizer(), 100);
  train(world, a,
        trireme::all_of(
            {trireme::state_of(net), trireme::state_of(optimizer), trireme::state_of(schedule)}),
        [&](const Batch& batch) {
          optimizer.zero_grad();
          auto loss = loss_of(net->forward(batch.data), batch.target);
          loss.backward();
          optimizer.step();
          schedule.step();
          return loss.detach();
        });
  print_bits(world, *net);
}

void zero3(trireme::Group world, const Arguments& a) {
  Net net;
  trireme::FullySharded sharded(world);
  auto block = trireme::fully_shard(net->block, sharded, "block");
  sharded.root(*net);
  trireme::ShardedOptimizer<AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-2));
  trireme::lr_scheduler::CosineAnnealingLR schedule(optimizer.torch_optimizer(), 100);
  const auto forward = [&](const torch::Tensor& x) {
    return net->out(block.forward(torch::relu(net->in(x))));
  };
  train(world, a,
        trireme::all_of({trireme::state_of(sharded), trireme::state_of(optimizer),
                         trireme::state_of(schedule)}),
        [&](const Batch& batch) {
          optimizer.zero_grad();
          auto loss = loss_of(sharded.run(forward, batch.data), batch.target);
          loss.backward();
          optimizer.step();
          schedule.step();
          return loss.detach();
        });
  trireme::FullySharded::Gathered whole(sharded);
  print_bits(world, *net);
}

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: own_loop_checkpoint ddp|zero2|zero3 RUN_DIR STEPS\n");
    return 2;
  }
  const Arguments a{argv[1], argv[2], std::atoll(argv[3])};
  auto world = trireme::init_process_group();
  at::set_num_threads(1);
  torch::manual_seed(1);
  if (a.mode == "ddp") {
    ddp(world, a);
  } else if (a.mode == "zero2") {
    zero2(world, a);
  } else {
    zero3(world, a);
  }
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
