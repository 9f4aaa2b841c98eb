// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tests/support/forked.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/shard/sharded_data_parallel.h"

namespace fork_test {

// A child of a fork() that trains with what its parent made: through the group it would reduce into
// its parent's memory.
using namespace trireme;
using namespace trireme::testing;

namespace {

/// Rank 0 forks a child that does `step`, which must be refused; then all ranks do it.
void expect_child_is_refused(Group& g, const std::function<void()>& step) {
  g.barrier();
  if (g.rank() == 0) {
    ForkedChild child(ChildEnd::exit_at_once, [&] { return refused_in_child("a step", step); });
    EXPECT_EQ(child.ended(), "");
  }
  g.barrier();
  step();
}

at::Tensor input(const Group& g) { return at::full({2, 4}, g.rank() + 1.0, at::kFloat); }
// Of the sum of outputs: each input is counted twice, and ranks 0 and 1 give 2 and 4.
constexpr double kMean = 3;

}  // namespace

TEST(shard_fork, a_child_that_trains_with_its_parents_ddp_is_refused_and_does_no_harm) {
  run_threads(2, [](Group g) {
    torch::nn::Linear net(4, 1);
    DistributedDataParallel ddp(net, g);
    expect_child_is_refused(g, [&] { net->forward(input(g)).sum().backward(); });
    EXPECT_TRUE(net->weight.grad().eq(kMean).all().item<bool>());
  });
}

TEST(shard_fork, a_child_that_trains_with_its_parents_zero_is_refused_and_does_no_harm) {
  for (bool gradients_too : {false, true})
    run_threads(2, [&](Group g) {
      torch::nn::Linear net(4, 1);
      ShardedDataParallelOptions options;
      options.stage = gradients_too ? ZeroStage::gradients : ZeroStage::optimizer;
      ShardedDataParallel zero(net, g, options);
      expect_child_is_refused(g, [&] { net->forward(input(g)).sum().backward(); });
    });
}

TEST(shard_fork, a_child_that_gathers_its_parents_shards_is_refused_and_does_no_harm) {
  run_threads(2, [](Group g) {
    torch::nn::Linear net(4, 1);
    FullySharded sharded(g);
    sharded.unit("net", *net);
    torch::nn::Module rest;
    sharded.root(rest);
    expect_child_is_refused(g, [&] { FullySharded::Gathered whole(sharded); });
  });
}

}  // namespace fork_test
