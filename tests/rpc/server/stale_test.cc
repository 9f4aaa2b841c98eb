// SPDX-License-Identifier: Apache-2.0
// Servers that take gradients as they come, and workers that are at most so many steps ahead.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "tests/rpc/server/servers.h"
#include "tests/rpc/server/task.h"

namespace trireme::rpc_server_stale_test {
namespace {

using namespace rpc_server_test;

constexpr int64_t kBatches = 1200;
/// By the number of batches that all have seen.
double lr_of(int64_t batch) { return 0.1 / (1 + static_cast<double>(batch) / 100); }

MakeOptimizer sgd() {
  return [](NamedTensors p) { return make_sgd(std::move(p)); };
}

}  // namespace

TEST(rpc_server_stale, two_workers_with_staleness_4_learn_what_one_process_learns) {
  Net alone = net_of(1);
  auto optimizer = sgd()(named_parameters(*alone));
  for (int64_t i = 0; i < kBatches; ++i) {
    optimizer->zero_grad();
    loss_of(alone, batch_of(i)).backward();
    optimizer->step(lr_of(i));
  }
  const double before = [] {
    Net untrained = net_of(1);
    return held_out(untrained);
  }();
  const double wanted = held_out(alone);
  ASSERT_LT(wanted, 0.6 * before) << "it has learnt something";

  Servers all(2, {.workers = 2, .staleness = 4, .optimizer = sgd()});
  double got = 0;
  std::atomic<int64_t> ahead{0}, steps[2] = {};
  const auto outcomes = all.workers(2, [&](int rank, rpc::Worker& me) {
    Net net = net_of(1 + static_cast<uint64_t>(rank));
    {
      rpc::ParameterClient client(me, named_parameters(*net), all.client(rank));
      while (client.steps() < kBatches / 2) {
        const int64_t step = client.steps();
        steps[rank] = step;
        ahead = std::max<int64_t>(ahead, step - steps[1 - rank]);
        drop_gradients(*net);
        loss_of(net, batch_of(2 * step + rank)).backward();
        client.step(lr_of(2 * step + rank));
      }
      if (rank == 0) {
        client.leave();
        return;
      }
    }
    // Once the other one has left, too.
    rpc::ParameterClient last(me, named_parameters(*net), all.client(rank));
    last.pull();
    got = held_out(net);
  });
  EXPECT_EQ(outcomes, nobody_threw(2));
  EXPECT_LE(std::abs(got / wanted - 1), 0.02) << got << " and " << wanted;
  EXPECT_LE(ahead, 4 + 1) << "the other may have begun a step that it has not said";
}

TEST(rpc_server_stale, a_worker_that_is_too_far_ahead_waits_and_says_for_whom) {
  Servers all(1, {.workers = 2, .staleness = 2});
  Net slow = net_of(2);
  auto late = all.job.start("late");
  auto me = all.job.start("trainer0");
  Net net = net_of(1);
  auto options = all.client(0);
  options.deadline = 200ms;
  rpc::ParameterClient client(me, named_parameters(*net), options);
  const auto step = [&] {
    drop_gradients(*net);
    loss_of(net, batch_of(client.steps())).backward();
    client.step(0.01);
  };
  step();
  step();
  EXPECT_EQ(client.steps(), 2);
  auto text = text_of<Timeout>(step);
  EXPECT_NE(text.find("worker 0 waits to begin step 3 at server 'server0', which waits for worker "
                      "1, which has not joined at step 0"),
            text.npos)
      << text;
  EXPECT_EQ(client.steps(), 2) << "its gradients were taken, and it may not begin the next step";

  auto other = all.client(1);
  rpc::ParameterClient slower(late, named_parameters(*slow), other);
  text = text_of<Timeout>([&] { client.step(0.01); });
  EXPECT_NE(text.find("waits for worker 1 ('late') at step 0"), text.npos) << text;
  loss_of(slow, batch_of(0)).backward();
  slower.step(0.01);
  client.step(0.01);
  EXPECT_EQ(client.steps(), 3);
  slower.leave();
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(client.steps(), 7) << "nobody waits for one that has left";
  EXPECT_EQ(all.server(0).steps(), 8);
}

TEST(rpc_server_stale, workers_give_rates_of_their_own) {
  Servers all(1, {.workers = 2, .staleness = 1});
  const auto outcomes = all.workers(2, [&](int rank, rpc::Worker& me) {
    Net net = net_of(1);
    rpc::ParameterClient client(me, named_parameters(*net), all.client(rank));
    while (client.steps() < 3) {
      drop_gradients(*net);
      loss_of(net, batch_of(client.steps())).backward();
      client.step(0.01 * (1 + rank));
    }
  });
  EXPECT_EQ(outcomes, nobody_threw(2));
  EXPECT_EQ(all.server(0).steps(), 6);
}

}  // namespace trireme::rpc_server_stale_test
