// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/rpc/server/recommender.h"
#include "tests/rpc/server/servers.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"

namespace trireme::rpc_server_embedding_test {
namespace {

using namespace rpc_server_test;

at::Tensor all_ids() { return torch::arange(kUsers + kItems, at::kLong); }

}  // namespace

TEST(rpc_server_embedding, rows_begin_alike_on_any_number_of_servers) {
  for (int servers : {1, 2, 3}) {
    Servers all(servers, {.workers = 1});
    auto me = all.job.start("trainer0");
    auto options = all.client(0);
    options.tables = {likes()};
    rpc::ParameterClient client(me, {}, options);
    rpc::ShardedEmbedding table(client, "likes");
    EXPECT_TRUE(at::equal(table(all_ids()).detach(), rows_at_first())) << servers;
  }
}

TEST(rpc_server_embedding,
     a_step_moves_the_rows_that_were_looked_up_by_the_sum_of_their_gradients) {
  for (int servers : {1, 3}) {
    Servers all(servers, {.workers = 1});
    auto me = all.job.start("trainer0");
    auto options = all.client(0);
    options.tables = {likes(), {"other", 7, 2}};
    rpc::ParameterClient client(me, {}, options);
    rpc::ShardedEmbedding table(client, "likes"), other(client, "other");
    at::Tensor wanted = rows_at_first();
    const at::Tensor ids = torch::tensor({5, 3, 5, 149, 5, 0}, at::kLong).view({2, 3});
    const at::Tensor looked_up = table(ids);
    EXPECT_EQ(looked_up.sizes().vec(), (std::vector<int64_t>{2, 3, kWidth}));
    EXPECT_TRUE(at::equal(looked_up.detach(), at::embedding(wanted, ids)));
    const at::Tensor again = table(torch::tensor({3}, at::kLong));  // two lookups in a step
    (looked_up.sum() + 2 * again.sum() + other(torch::tensor({6}, at::kLong)).sum()).backward();
    client.step(0.5);
    for (auto [row, times] : std::map<int64_t, double>{{5, 3}, {3, 3}, {149, 1}, {0, 1}})
      wanted.select(0, row) -= 0.5 * times;
    EXPECT_TRUE(at::allclose(table(all_ids()).detach(), wanted, 1e-6, 1e-6));
    EXPECT_TRUE(at::equal(other(torch::tensor({5, 6}, at::kLong)).detach(),
                          torch::tensor({0., 0., -0.5, -0.5}, at::kFloat).view({2, 2})));
    EXPECT_EQ(client.steps(), 1);
  }
}

TEST(rpc_server_embedding, lookups_without_grad_mode_leave_nothing_to_send) {
  Servers all(2, {.workers = 1});
  auto me = all.job.start("trainer0");
  auto options = all.client(0);
  options.tables = {likes()};
  rpc::ParameterClient client(me, {}, options);
  rpc::ShardedEmbedding table(client, "likes");
  {
    torch::NoGradGuard no_grad;
    EXPECT_FALSE(table(all_ids()).requires_grad());
  }
  EXPECT_EQ(table(torch::empty({0, 4}, at::kLong)).sizes().vec(),
            (std::vector<int64_t>{0, 4, kWidth}));
  client.step(1);
  client.step(1);
  EXPECT_TRUE(at::equal(table(all_ids()).detach(), rows_at_first()));
}

TEST(rpc_server_embedding, ids_and_tables_that_there_are_not_are_refused) {
  Servers all(1, {.workers = 1});
  auto me = all.job.start("trainer0");
  auto options = all.client(0);
  options.tables = {likes()};
  rpc::ParameterClient client(me, {}, options);
  rpc::ShardedEmbedding table(client, "likes");
  for (int64_t id : {int64_t{-1}, kUsers + kItems}) {
    const auto text = text_of<UsageError>([&] { table(torch::tensor({int64_t{0}, id})); });
    EXPECT_NE(text.find("there is no row " + std::to_string(id) + " of 'likes'"), text.npos)
        << text;
  }
  EXPECT_THROW(table(torch::tensor({1.5})), UsageError);
  EXPECT_THROW(rpc::ShardedEmbedding(client, "nothing"), UsageError);
  const at::Tensor rows = table(torch::tensor({int64_t{1}}));
  (rows.sum() * std::numeric_limits<double>::quiet_NaN()).backward();
  const auto text = text_of<NumericError>([&] { client.step(1); });
  EXPECT_NE(text.find("rows of 'likes' at worker 0"), text.npos) << text;
  client.step(1);
  EXPECT_TRUE(at::equal(table(all_ids()).detach(), rows_at_first()));
}

TEST(rpc_server_embedding, a_recommender_learns_what_one_process_learns) {
  constexpr int64_t kSteps = 250;
  const auto [before, wanted] = ratings_learnt_alone(kSteps, 2);
  ASSERT_LT(wanted, 0.75 * before) << "it has learnt something";
  for (std::optional<int64_t> staleness : {std::optional<int64_t>(), std::optional<int64_t>(4)}) {
    Servers all(2, {.workers = 2, .staleness = staleness});
    std::mutex mutex;
    double got = 0;
    run_threads(2, [&](Group g) {
      auto me = all.job.start("trainer" + std::to_string(g.rank()));
      Net net = dense_part();
      DistributedDataParallel ddp(net, g);
      auto optimizer = make_sgd(named_parameters(*net));
      auto options = all.client(g.rank());
      options.tables = {likes()};
      rpc::ParameterClient client(me, {}, options);
      rpc::ShardedEmbedding table(client, "likes");
      while (client.steps() < kSteps) {
        optimizer->zero_grad();
        loss_of_ratings(net, ratings_of(2 * client.steps() + g.rank()), table).backward();
        // With staleness each worker's rows make a step of their own; half of one is the mean.
        client.step(staleness ? kRowLr / 2 : kRowLr);
        optimizer->step(kLr);
      }
      g.barrier();
      std::lock_guard lock(mutex);
      if (g.rank() == 0) got = held_out_ratings(net, table);
    });
    EXPECT_LE(std::abs(got / wanted - 1), 0.02) << got << " and " << wanted;
  }
}

}  // namespace trireme::rpc_server_embedding_test
