// SPDX-License-Identifier: Apache-2.0
// Synchronous servers: the weights of DistributedDataParallel, bit for bit.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>

#include "tests/rpc/server/servers.h"
#include "tests/rpc/server/task.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"

namespace trireme::rpc_server_synchronous_test {
namespace {

using namespace rpc_server_test;

constexpr int64_t kSteps = 7;

MakeOptimizer optimizer_of(const std::string& name) {
  if (name == "sgd")
    return [](NamedTensors p) { return make_sgd(std::move(p), {.momentum = 0.9}); };
  return [](NamedTensors p) { return make_adamw(std::move(p), {.weight_decay = 0.1}); };
}

double lr_of(int64_t step) { return 0.01 / static_cast<double>(1 + step); }

at::Tensor with_ddp(int n, const std::string& optimizer) {
  std::mutex mutex;
  at::Tensor weights;
  run_threads(n, [&](Group g) {
    Net net = net_of(1 + static_cast<uint64_t>(g.rank()));
    DistributedDataParallel ddp(net, g);
    auto own = optimizer_of(optimizer)(named_parameters(*net));
    for (int64_t step = 0; step < kSteps; ++step) {
      own->zero_grad();
      loss_of(net, batch_of(step * n + g.rank())).backward();
      own->step(lr_of(step));
    }
    std::lock_guard lock(mutex);
    if (g.rank() == 0) weights = flat(*net);
  });
  return weights;
}

void train(rpc::ParameterClient& client, Net& net, int rank, int n) {
  while (client.steps() < kSteps) {
    const int64_t step = client.steps();
    drop_gradients(*net);
    loss_of(net, batch_of(step * n + rank)).backward();
    client.step(lr_of(step));
  }
}

at::Tensor with_servers(int n, int servers, const std::string& optimizer, bool overlap) {
  Servers all(servers, {.workers = n, .optimizer = optimizer_of(optimizer)});
  std::vector<at::Tensor> weights(static_cast<size_t>(n));
  const auto outcomes = all.workers(n, [&](int rank, rpc::Worker& me) {
    Net net = net_of(1 + static_cast<uint64_t>(rank));
    auto options = all.client(rank);
    options.overlap = overlap;
    rpc::ParameterClient client(me, named_parameters(*net), options);
    train(client, net, rank, n);
    weights[static_cast<size_t>(rank)] = flat(*net);
  });
  EXPECT_EQ(outcomes, nobody_threw(static_cast<size_t>(n)));
  for (const at::Tensor& w : weights)
    EXPECT_TRUE(w.defined() && at::equal(w, weights[0])) << "workers have different weights";
  return weights[0];
}

}  // namespace

TEST(rpc_server_synchronous, weights_have_the_bits_of_ddp) {
  for (const char* optimizer : {"sgd", "adamw"})
    for (int n : {2, 4}) {
      const at::Tensor wanted = with_ddp(n, optimizer);
      for (int servers : {1, 2, 3})
        EXPECT_TRUE(at::equal(wanted, with_servers(n, servers, optimizer, servers == 2)))
            << optimizer << ", " << n << " workers, " << servers << " servers";
    }
}

TEST(rpc_server_synchronous, three_workers_have_the_bits_of_ddp_too) {
  EXPECT_TRUE(at::equal(with_ddp(3, "adamw"), with_servers(3, 2, "adamw", true)));
}

TEST(rpc_server_synchronous, servers_may_live_in_the_workers) {
  constexpr int n = 2;
  const Job job;
  std::vector<at::Tensor> weights(n);
  std::vector<std::string> outcomes(n);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<size_t>(rank)] = testing::outcome_of([&] {
        rpc::ParameterServer server({.workers = n, .optimizer = optimizer_of("adamw")});
        auto me = job.start("both" + std::to_string(rank), {server.offer()});
        Net net = net_of(1 + static_cast<uint64_t>(rank));
        {
          rpc::ParameterClient client(
              me, named_parameters(*net),
              {.servers = {"both0", "both1"}, .rank = rank, .deadline = kPlenty});
          train(client, net, rank, n);
        }
        EXPECT_TRUE(server.wait(Deadline::after(kPlenty)));
        EXPECT_EQ(server.steps(), kSteps);
        me.shutdown({.deadline = kPlenty});
        weights[static_cast<size_t>(rank)] = flat(*net);
      });
    });
  for (auto& thread : threads) thread.join();
  ASSERT_EQ(outcomes, nobody_threw(n));
  for (const auto& w : weights) EXPECT_TRUE(at::equal(w, with_ddp(n, "adamw")));
}

TEST(rpc_server_synchronous,
     a_job_goes_on_from_its_checkpoints_with_the_bits_of_one_that_ran_through) {
  PrivateFolder folder;
  at::Tensor weights;
  for (int64_t until : {4, 7}) {  // saved at 3, and as all have left, at 4
    Servers all(2, {.workers = 2, .optimizer = optimizer_of("adamw"), .save_every = 3},
                folder.path());
    const auto outcomes = all.workers(2, [&](int rank, rpc::Worker& me) {
      Net net = net_of(5 + static_cast<uint64_t>(rank));
      if (rank == 0 && until == 4) net = net_of(1);
      rpc::ParameterClient client(me, named_parameters(*net), all.client(rank));
      EXPECT_EQ(client.steps(), until == 4 ? 0 : 4);
      while (client.steps() < until) {
        const int64_t step = client.steps();
        drop_gradients(*net);
        loss_of(net, batch_of(step * 2 + rank)).backward();
        client.step(lr_of(step));
      }
      if (rank == 0) weights = flat(*net);
    });
    ASSERT_EQ(outcomes, nobody_threw(2));
    for (int i : {0, 1}) EXPECT_TRUE(all.server(i).wait(Deadline::after(kPlenty)));
  }
  EXPECT_TRUE(at::equal(weights, with_ddp(2, "adamw")));
}

}  // namespace trireme::rpc_server_synchronous_test
