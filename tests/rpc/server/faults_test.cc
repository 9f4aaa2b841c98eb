// SPDX-License-Identifier: Apache-2.0
// Servers and workers that die, and callers who mean no good.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <limits>

#include "tests/rpc/server/servers.h"
#include "tests/rpc/server/task.h"
#include "trireme/rpc/server/methods.h"

namespace trireme::rpc_server_faults_test {
namespace {

using namespace rpc_server_test;

constexpr int64_t kSteps = 12;

MakeOptimizer adamw() {
  return [](NamedTensors p) { return make_adamw(std::move(p)); };
}

/// Trains to the end; at step `at`, the first time, `happens` is called by worker 0.
at::Tensor train(Servers& all, int64_t at = -1, const std::function<void()>& happens = {}) {
  std::vector<at::Tensor> weights(2);
  std::atomic<bool> happened{false};
  const auto outcomes = all.workers(2, [&](int rank, rpc::Worker& me) {
    Net net = net_of(1 + static_cast<uint64_t>(rank));
    rpc::ParameterClient client(me, named_parameters(*net), all.client(rank));
    while (client.steps() < kSteps) {
      const int64_t step = client.steps();
      drop_gradients(*net);
      loss_of(net, batch_of(2 * step + rank)).backward();
      if (rank == 0 && step == at && !happened.exchange(true)) happens();
      client.step(0.01);
    }
    weights[static_cast<size_t>(rank)] = flat(*net);
  });
  EXPECT_EQ(outcomes, nobody_threw(2));
  EXPECT_TRUE(weights[0].defined() && weights[1].defined() && at::equal(weights[0], weights[1]));
  return weights[0];
}

}  // namespace

TEST(rpc_server_faults, synchronous_servers_go_back_to_one_step_when_one_of_them_dies) {
  at::Tensor wanted;
  {
    Servers calm(2, {.workers = 2, .optimizer = adamw()});
    wanted = train(calm);
  }
  for (int killed : {0, 1})  // the first one also keeps what was decided
    for (int64_t every : {1, 3}) {
      PrivateFolder folder;
      Servers all(2, {.workers = 2, .optimizer = adamw(), .save_every = every}, folder.path());
      const at::Tensor got = train(all, 7, [&] {
        all.kill(killed);
        all.begin(killed);
      });
      ASSERT_TRUE(got.defined());
      EXPECT_TRUE(at::equal(got, wanted)) << "server " << killed << ", saved every " << every;
    }
}

TEST(rpc_server_faults, without_checkpoints_a_lost_server_ends_the_job_with_a_sentence) {
  Servers all(2, {.workers = 1});
  auto me = all.job.start("trainer0");
  Net net = net_of(1);
  rpc::ParameterClient client(me, named_parameters(*net), all.client(0));
  client.step(0.1);
  all.kill(1);
  all.begin(1);
  const auto text = text_of<UsageError>([&] { client.step(0.1); });
  EXPECT_NE(text.find("no step in common to go back to"), text.npos) << text;
}

TEST(rpc_server_faults, a_server_that_does_not_come_back_is_an_error_by_the_deadline) {
  Servers all(1, {.workers = 1});
  auto me = all.job.start("trainer0");
  Net net = net_of(1);
  auto options = all.client(0);
  options.deadline = 300ms;
  rpc::ParameterClient client(me, named_parameters(*net), options);
  client.step(0.1);
  all.kill(0);
  try {
    client.step(0.1);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'server0'"), std::string::npos) << error.what();
  }
}

TEST(rpc_server_faults, a_worker_that_dies_is_left_out_and_the_others_go_on) {
  for (std::optional<int64_t> staleness : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
    Servers all(2, {.workers = 3, .staleness = staleness});
    const auto outcomes = all.workers(3, [&](int rank, rpc::Worker& me) {
      Net net = net_of(1);
      auto options = all.client(rank);
      if (rank == 1) options.deadline = 100ms;
      rpc::ParameterClient client(me, named_parameters(*net), options);
      while (client.steps() < kSteps) {
        drop_gradients(*net);
        loss_of(net, batch_of(3 * client.steps() + rank)).backward();
        if (rank == 1 && client.steps() == 5) all.job.net->kill("trainer1");
        client.step(0.01);
      }
    });
    EXPECT_EQ(outcomes[0], "");
    EXPECT_EQ(outcomes[2], "");
    EXPECT_NE(outcomes[1], "");
    for (int i : {0, 1}) {
      EXPECT_TRUE(all.server(i).wait(Deadline::after(kPlenty)));
      EXPECT_EQ(all.server(i).steps(), staleness ? 2 * kSteps + 5 : kSteps);
    }
  }
}

TEST(rpc_server_faults, a_worker_that_was_left_out_does_not_come_back_into_synchronous_steps) {
  Servers all(1, {.workers = 2});
  auto first = all.job.start("trainer0");
  auto second = std::make_unique<rpc::Worker>(all.job.start("trainer1"));
  Net net = net_of(1), other = net_of(1);
  rpc::ParameterClient client(first, named_parameters(*net), all.client(0));
  {
    auto options = all.client(1);
    options.deadline = 100ms;
    rpc::ParameterClient lost(*second, named_parameters(*other), options);
    all.job.net->kill("trainer1");
    client.step(0.1);  // waits until it is left out
    second->shutdown({.graceful = false, .deadline = Duration::zero()});
  }
  second.reset();
  auto again = all.job.start("trainer1");
  const auto text = text_of<UsageError>(
      [&] { rpc::ParameterClient(again, named_parameters(*other), all.client(1)); });
  EXPECT_NE(text.find("left out: start the job again"), text.npos) << text;
}

TEST(rpc_server_faults, calls_that_nobody_should_make_are_refused_and_harm_nothing) {
  using namespace rpc::server;
  Servers all(1, {.workers = 2});
  auto me = all.job.start("trainer0"), attacker = all.job.start("attacker");
  const at::Tensor p = at::ones({3}).set_requires_grad(true);
  auto options = all.client(0);
  options.tables = {{"items", 10, 2}};
  rpc::ParameterClient client(me, {{"p", p}}, options);
  const rpc::Peer peer = attacker.peer("server0"), own = me.peer("server0");
  const auto refused = [&](const std::function<void()>& call, const std::string& why) {
    const auto text = text_of<UsageError>(call);
    EXPECT_NE(text.find(why), text.npos) << text;
  };
  const auto join_as = [](int rank) {
    Join join;
    join.rank = rank;
    join.servers = 7;
    return join;
  };
  // In another's name.
  refused([&] { peer.sync<PushCall>(Push{.rank = 0, .epoch = 1}); },
          "'attacker' calls as worker 0");
  refused([&] { peer.sync<PullCall>(Wanted{0, 1, 0}); }, "'attacker' calls as worker 0");
  refused([&] { peer.sync<LookUpCall>(Lookup{{1, 1, 0}, 0, {}}); }, "which is nobody yet");
  refused([&] { peer.sync<LeaveCall>(0); }, "'attacker' calls as worker 0");
  refused([&] { peer.sync<BeginCall>(Begin{0, {9, true, 0, {}}}); }, "'attacker' calls as");
  refused([&] { peer.sync<AttendCall>(Attend{0, 0}); }, "'attacker' calls as worker 0");
  refused([&] { peer.sync<JoinCall>(join_as(-1)); }, "a worker of rank -1");
  refused([&] { peer.sync<JoinCall>(join_as(1 << 30)); }, "a worker of rank");
  EXPECT_THROW(peer.sync<JoinCall>(join_as(1)), Mismatch);

  // In one's own, with nonsense.
  Push push{.rank = 0, .epoch = 1, .step = 0, .lr = 1, .total = 1};
  const at::Tensor good = at::ones({3});
  const auto push_of = [&](std::vector<uint32_t> keys, std::vector<at::Tensor> gradients) {
    push.keys = std::move(keys);
    push.gradients = std::move(gradients);
    return [&own, push] { own.sync<PushCall>(push); };
  };
  refused(push_of({0}, {}), "no message of a step");
  refused(push_of({7}, {good}), "key 7, which this server does not train");
  refused(push_of({0}, {at::ones({4})}), "the gradient of 'p' is Float[4], and must be Float[3]");
  refused(push_of({0}, {at::ones({3}, at::kDouble)}), "the gradient of 'p' is Double[3]");
  refused(push_of({0}, {at::Tensor()}), "is undefined");
  push.total = -1;
  refused(push_of({0, 0}, {good, good}), "gives the gradient of key 0 twice");
  push.total = int64_t{1} << 62;
  refused(push_of({0}, {good}), "no message of a step");
  push.total = 1;
  push.lr = std::numeric_limits<double>::quiet_NaN();
  refused(push_of({0}, {good}), "no message of a step");
  push.lr = 1;
  push.step = 5;
  refused(push_of({0}, {good}), "gives gradients of step 5, and is at step 0");
  push.step = 0;
  push.keys = {};
  push.gradients = {};
  push.total = 0;
  const auto rows_of = [&](at::Tensor rows, at::Tensor gradients, uint32_t table = 0) {
    push.tables = {table};
    push.rows = {std::move(rows)};
    push.row_gradients = {std::move(gradients)};
    return [&own, push] { own.sync<PushCall>(push); };
  };
  const auto numbers = [](std::vector<int64_t> n) { return torch::tensor(n, at::kLong); };
  refused(rows_of(numbers({1, 1}), at::ones({2, 2})), "row 1 of 'items' follows row 1");
  refused(rows_of(numbers({10}), at::ones({1, 2})), "row 10 of 'items'");
  refused(rows_of(numbers({-1}), at::ones({1, 2})), "row -1 of 'items'");
  refused(rows_of(numbers({1}), at::ones({1, 3})), "the gradients of 1 rows of 'items'");
  refused(rows_of(at::ones({1}), at::ones({1, 2})), "must be int64");
  refused(rows_of(numbers({1}), at::ones({1, 2}), 4), "there is no table 4");
  refused([&] { own.sync<LookUpCall>(Lookup{{0, 1, 0}, 0, numbers({3, 2})}); }, "follows row 3");
  refused([&] { own.sync<BeginCall>(Begin{0, {9, false, 4, {}}}); }, "");
  for (const int64_t step : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    refused([&] { own.sync<AttendCall>(Attend{0, step - (step < 0)}); }, "steps are counted from");
    refused([&] { own.sync<PullCall>(Wanted{0, 1, step}); }, "steps are counted from 0");
    refused([&] { own.sync<WaitedForCall>(step); }, "steps are counted from 0");
    refused([&] { own.sync<BeginCall>(Begin{0, {9, false, step, {}}}); }, "counted from 0");
  }
  refused([&] { own.sync<BeginCall>(Begin{0, {9, true, 3, {}}}); }, "to begin afresh at step 3");
  EXPECT_EQ(own.sync<PullCall>(Wanted{0, 99, 0}).answer, Answer::over);

  // It works on.
  client.pull();
  EXPECT_TRUE(at::equal(p.detach(), good));
  auto second = all.job.start("trainer1");
  auto other = all.client(1);
  other.tables = options.tables;
  rpc::ParameterClient peer_client(second, {{"p", at::zeros({3}).set_requires_grad(true)}}, other);
  at::Tensor q = p;
  q.mutable_grad() = at::ones({3});
  auto late = std::async(std::launch::async, [&] { client.step(1); });
  peer_client.step(1);
  late.get();
  EXPECT_TRUE(at::equal(p.detach(), at::full({3}, 0.5)));
}

TEST(rpc_server_faults, what_no_memory_holds_is_refused_before_anything_is_allocated) {
  using namespace rpc::server;
  Servers all(1, {.workers = 1});
  auto me = all.job.start("trainer0");
  const rpc::Peer peer = me.peer("server0");
  constexpr int kFloat = static_cast<int>(at::kFloat);
  const auto text = [&](std::vector<Key> keys, std::vector<TableKey> tables) {
    try {
      peer.sync<JoinCall>(Join{0, 0, 1, std::move(keys), std::move(tables), {}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("it was taken");
  };
  const int64_t huge = int64_t{1} << 39;  // elements: 2 TiB
  EXPECT_NE(text({{"p", kFloat, {huge}}}, {}).find("2.2e+03 GB"), std::string::npos)
      << text({{"p", kFloat, {huge}}}, {});
  EXPECT_NE(text({}, {{"t", huge / 4, 4, kFloat}}).find("GB of memory"), std::string::npos);
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{-1},
                                         {int64_t{1} << 62, 4},
                                         {0, int64_t{1} << 62},
                                         {std::numeric_limits<int64_t>::min()}})
    EXPECT_NE(text({{"p", kFloat, sizes}}, {}).find("are no sizes"), std::string::npos);
  EXPECT_NE(text({{"p", kFloat, std::vector<int64_t>(1000, 1)}}, {}).find("1000 dims"),
            std::string::npos);
  EXPECT_NE(text({{"p", 99, {1}}}, {}).find("a dtype (number 99)"), std::string::npos);
  EXPECT_NE(text({}, {{"t", 1, 1, kFloat, std::nan("")}}).find("standard deviation"),
            std::string::npos);
  std::vector<Key> many;  // each of which there is room for
  for (int i = 0; i < 100; ++i)
    many.push_back({"p" + std::to_string(100 + i), kFloat, {int64_t{1} << 31}});
  EXPECT_NE(text(many, {}).find("GB of memory"), std::string::npos);
  EXPECT_NO_THROW(
      peer.sync<JoinCall>(Join{0, 0, 1, {{"p", kFloat, {3}, true}}, {}, {at::ones({3})}}));
}

}  // namespace trireme::rpc_server_faults_test
