// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/shard/sharded_nets.h"
#include "trireme/shard/fully_shard.h"
#include "trireme/shard/sharded_optimizer.h"

// A network of blocks, and the same with its blocks as units of stage 3.
namespace trireme::testing {

struct Block : torch::nn::Module {
  explicit Block(int64_t width = 40) {
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(torch::tanh(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};

// Elements of a block in a flat buffer: two matrices of 3,200 and two biases, each rounded up.
constexpr int64_t kBlock = 2 * 4096 + 2 * 1024;

// Four blocks between two ends.
struct Tower : torch::nn::Module {
  explicit Tower(uint64_t seed) {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    torch::manual_seed(seed);
    to = register_module("to", torch::nn::Linear(9, 40));
    for (int i = 0; i < 4; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    from = register_module("from", torch::nn::Linear(40, 3));
    torch::nn::Module::to(at::kDouble);
  }
  at::Tensor forward(at::Tensor x) {
    x = to(x);
    for (size_t i = 0; i < blocks.size(); ++i)
      x = run_block ? run_block(i, x) : blocks[i]->forward(x);
    return from(x);
  }
  torch::nn::Linear to{nullptr}, from{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  std::function<at::Tensor(size_t, const at::Tensor&)> run_block;
};

/// A tower whose blocks are units.
struct ShardedTower {
  ShardedTower(uint64_t seed, ShardGroups groups, FullyShardedOptions options = {})
      : tower(std::make_shared<Tower>(seed)), sharded(std::move(groups), std::move(options)) {
    for (size_t i = 0; i < 4; ++i)
      units.push_back(fully_shard(tower->blocks[i], sharded, "block" + std::to_string(i)));
    sharded.root(*tower);
    tower->run_block = [this](size_t i, const at::Tensor& x) { return units[i].forward(x); };
  }
  at::Tensor forward(const at::Tensor& x) {
    return sharded.run([this](const at::Tensor& in) { return tower->forward(in); }, x);
  }
  void expect_same(Tower& want, double tolerance = 1e-12) {
    FullySharded::Gathered whole(sharded);
    expect_same_parameters(*tower, want, tolerance);
  }
  std::shared_ptr<Tower> tower;
  FullySharded sharded;
  std::vector<FullyShardedModule<Block>> units;
};

inline at::Tensor loss_of(const at::Tensor& y) { return y.pow(2).sum(1).mean(); }

inline std::shared_ptr<Tower> serial_adamw(int steps = kSteps) {
  auto want = std::make_shared<Tower>(1);
  torch::optim::AdamW optimizer(want->parameters(), torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(want->forward(rows_of_step(step))).backward();
    optimizer.step();
  }
  return want;
}

inline void train(ShardedTower& net, const Group& g, int steps = kSteps) {
  ShardedOptimizer<torch::optim::AdamW> optimizer(net.sharded, torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net.forward(part(rows_of_step(step), g))).backward();
    optimizer.step();
  }
}

}  // namespace trireme::testing
