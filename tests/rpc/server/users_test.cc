// SPDX-License-Identifier: Apache-2.0
// What people do with parameter servers: right, half right and wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/rpc/server/servers.h"
#include "tests/rpc/server/task.h"
#include "trireme/base/file.h"

namespace trireme::rpc_server_users_test {
namespace {

using namespace rpc_server_test;

at::Tensor parameter(std::vector<int64_t> sizes, double value = 1,
                     at::ScalarType dtype = at::kFloat) {
  return at::full(sizes, value, at::TensorOptions().dtype(dtype)).set_requires_grad(true);
}
void give(at::Tensor p, double value) { p.mutable_grad() = at::full_like(p.detach(), value); }
bool is(const at::Tensor& t, double value) {
  return at::allclose(t.detach().to(at::kDouble), at::full_like(t.detach(), value, at::kDouble),
                      1e-6, 1e-6);
}

/// One worker and its servers: SGD.
struct One {
  explicit One(NamedTensors parameters, int servers = 1, rpc::ServerOptions options = {})
      : all(servers, std::move(options)),
        me(all.job.start("trainer0")),
        client(me, std::move(parameters), all.client(0)) {}
  Servers all;
  rpc::Worker me;
  rpc::ParameterClient client;
};

}  // namespace

TEST(rpc_server_users, a_parameter_with_two_names_is_one) {
  const at::Tensor p = parameter({3}), q = parameter({2});
  One one({{"head.weight", p}, {"embedding.weight", p}, {"bias", q}}, 2);
  give(p, 1);
  give(q, 1);
  one.client.step(0.5);
  EXPECT_TRUE(is(p, 0.5)) << p;
  EXPECT_TRUE(is(q, 0.5));

  // Another worker may list the names in another order.
  Servers two(1, {.workers = 2});
  EXPECT_EQ(two.workers(2,
                        [&](int rank, rpc::Worker& me) {
                          const at::Tensor t = parameter({3});
                          NamedTensors list = {{"a", t}, {"b", t}};
                          if (rank == 1) std::reverse(list.begin(), list.end());
                          rpc::ParameterClient client(me, list, two.client(rank));
                          give(t, rank);
                          client.step(1);
                          EXPECT_TRUE(is(t, 0.5));
                        }),
            nobody_threw(2));
}

TEST(rpc_server_users, frozen_parameters_begin_as_rank_0_has_them_and_stay) {
  Servers all(2, {.workers = 2});
  EXPECT_EQ(all.workers(
                2,
                [&](int rank, rpc::Worker& me) {
                  const at::Tensor p = parameter({2}, 1 + rank), frozen = at::full({3}, 5.0 + rank),
                                   count = at::full({}, 7 + rank, at::kLong);
                  rpc::ParameterClient client(me, {{"p", p}, {"frozen", frozen}, {"count", count}},
                                              all.client(rank));
                  EXPECT_TRUE(is(p, 1) && is(frozen, 5) && is(count, 7));
                  give(p, 1);
                  client.step(0.25);
                  EXPECT_TRUE(is(p, 0.75) && is(frozen, 5));
                }),
            nobody_threw(2));
}

TEST(rpc_server_users, workers_with_different_models_are_refused_with_names) {
  const auto refusal = [](NamedTensors second, std::vector<rpc::TableOptions> tables = {}) {
    Servers all(1, {.workers = 2});
    auto first = all.job.start("trainer0"), other = all.job.start("trainer1");
    rpc::ParameterClient client(first, {{"b.weight", parameter({2, 3})}, {"d", parameter({4})}},
                                all.client(0));
    auto options = all.client(1);
    options.tables = std::move(tables);
    return text_of<Mismatch>([&] { rpc::ParameterClient(other, std::move(second), options); });
  };
  auto text = refusal({{"b.weight", parameter({2, 4})}, {"d", parameter({4})}});
  EXPECT_NE(text.find("workers 'trainer0' and 'trainer1' have different models: parameter "
                      "'b.weight' has another shape"),
            text.npos)
      << text;
  text = refusal({{"b.weight", parameter({2, 3})}});
  EXPECT_NE(text.find("only the first has parameter 'd'"), text.npos) << text;
  text = refusal({{"a", parameter({1})}, {"b.weight", parameter({2, 3})}, {"d", parameter({4})}});
  EXPECT_NE(text.find("only the second has parameter 'a'"), text.npos) << text;
  text = refusal({{"b.weight", parameter({2, 3}, 1, at::kDouble)}, {"d", parameter({4})}});
  EXPECT_NE(text.find("'b.weight' has another shape, dtype"), text.npos) << text;
  text = refusal({{"b.weight", parameter({2, 3})}, {"d", parameter({4})}}, {{"items", 5, 2}});
  EXPECT_NE(text.find("only the second has table 'items'"), text.npos) << text;
}

TEST(rpc_server_users, parameters_may_be_listed_in_any_order) {
  Servers all(3, {.workers = 2});
  EXPECT_EQ(all.workers(2,
                        [&](int rank, rpc::Worker& me) {
                          NamedTensors list;
                          for (int i = 0; i < 7; ++i)
                            list.emplace_back("p" + std::to_string(i), parameter({1 + i}, i));
                          if (rank == 1) std::reverse(list.begin(), list.end());
                          rpc::ParameterClient client(me, list, all.client(rank));
                          for (auto& [name, p] : list) give(p, 1 + rank);
                          client.step(1);
                          for (auto& [name, p] : list) EXPECT_TRUE(is(p, name[1] - '0' - 1.5));
                        }),
            nobody_threw(2));
}

TEST(rpc_server_users, a_gradient_that_is_none_counts_as_zeros_and_nowhere_as_no_step) {
  Servers all(1, {.workers = 2, .optimizer = [](NamedTensors p) {
                    return make_sgd(std::move(p), {.momentum = 0.9});
                  }});
  EXPECT_EQ(all.workers(2,
                        [&](int rank, rpc::Worker& me) {
                          const at::Tensor used = parameter({2}), half = parameter({2}),
                                           unused = parameter({2});
                          rpc::ParameterClient client(
                              me, {{"used", used}, {"half", half}, {"unused", unused}},
                              all.client(rank));
                          give(used, 1);
                          if (rank == 1) give(half, 1);
                          client.step(1);
                          EXPECT_TRUE(is(used, 0) && is(half, 0.5) && is(unused, 1));
                        }),
            nobody_threw(2));
}

TEST(rpc_server_users, a_gradient_that_is_not_finite_is_refused_and_the_step_can_be_made_again) {
  for (bool overlap : {false, true}) {
    Servers all(2, {.workers = 1});
    auto me = all.job.start("trainer0");
    const at::Tensor good = parameter({400000}), bad = parameter({2});
    auto options = all.client(0);
    options.overlap = overlap;
    rpc::ParameterClient client(me, {{"bad", bad}, {"good", good}}, options);
    const auto backward = [&](double factor) {
      for (at::Tensor p : {good, bad}) p.mutable_grad() = at::Tensor();
      (good.sum() + bad.sum() * factor).backward();
    };
    backward(std::numeric_limits<double>::infinity());
    const auto text = text_of<NumericError>([&] { client.step(0.5); });
    EXPECT_NE(text.find("'bad' at worker 0 is not finite in step 0"), text.npos) << text;
    EXPECT_EQ(client.steps(), 0);
    backward(1);
    client.step(0.5);
    EXPECT_TRUE(is(good, 0.5) && is(bad, 0.5)) << "the first attempt counts nowhere";
    EXPECT_EQ(client.steps(), 1);
  }
}

TEST(rpc_server_users, half_precision_parameters_have_float32_masters_at_the_server) {
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor p = parameter({5}, 1, dtype), q = parameter({5}, 1);
    One one({{"p", p}, {"q", q}});
    // Each is too small for a weight of 1 in half precision.
    for (int i = 0; i < 64; ++i) {
      give(p, 1);
      give(q, 1);
      one.client.step(1.0 / 8192);
    }
    EXPECT_TRUE(is(p, 1 - 64.0 / 8192)) << p;
    EXPECT_TRUE(is(q, 1 - 64.0 / 8192)) << q;
  }
}

TEST(rpc_server_users, lists_of_servers_that_are_none_are_refused) {
  const Job job;
  auto me = job.start("trainer0");
  const auto refusal = [&](std::vector<std::string> servers) {
    return text_of<UsageError>([&] {
      rpc::ParameterClient(me, {{"p", parameter({1})}}, {.servers = std::move(servers)});
    });
  };
  EXPECT_NE(refusal({}).find("without servers"), std::string::npos);
  EXPECT_NE(refusal({"a", "b", "a"}).find("names 'a' twice"), std::string::npos);
  EXPECT_THROW(rpc::ParameterServer({.workers = 0}), UsageError);
  EXPECT_THROW(rpc::ParameterServer({.workers = 1, .staleness = -1}), UsageError);
  EXPECT_THROW(rpc::ParameterServer({.workers = 1, .save_every = 0}), UsageError);
  const auto late = text_of<Timeout>([&] {
    rpc::ParameterClient(me, {{"p", parameter({1})}}, {.servers = {"nobody"}, .deadline = 50ms});
  });
  EXPECT_NE(late.find("'nobody'"), late.npos) << late;
}

TEST(rpc_server_users, there_may_be_more_servers_than_parameters) {
  const at::Tensor p = parameter({3});
  One one({{"p", p}}, 4);
  give(p, 1);
  one.client.step(0.5);
  EXPECT_TRUE(is(p, 0.5));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(one.all.server(i).steps(), 1);
}

TEST(rpc_server_users, a_parameter_may_be_larger_than_a_message) {
  const at::Tensor p = parameter({9 << 20});  // 36 MiB
  One one({{"p", p}});
  give(p, 1);
  one.client.step(0.5);
  EXPECT_TRUE(is(p, 0.5));
}

TEST(rpc_server_users, unequal_learning_rates_are_refused_with_names) {
  Servers all(1, {.workers = 2});
  const auto outcomes = all.workers(2, [&](int rank, rpc::Worker& me) {
    const at::Tensor p = parameter({2});
    auto options = all.client(rank);
    options.deadline = 1s;
    rpc::ParameterClient client(me, {{"p", p}}, options);
    give(p, 1);
    client.step(0.1 * (1 + rank));
  });
  const std::string text = outcomes[0] + outcomes[1];
  EXPECT_NE(text.find("Mismatch: "), text.npos) << text;
  EXPECT_NE(text.find("worker 1 ('trainer1')"), text.npos) << text;
}

TEST(rpc_server_users, overlap_refuses_gradients_that_change_or_come_twice) {
  Servers all(1, {.workers = 1});
  auto me = all.job.start("trainer0");
  const at::Tensor p = parameter({3});
  auto options = all.client(0);
  options.overlap = true;
  rpc::ParameterClient client(me, {{"p", p}}, options);
  at::Tensor q = p;
  p.sum().backward();
  q.mutable_grad().mul_(2);  // clipped, say
  EXPECT_NE(text_of<UsageError>([&] { client.step(1); }).find("'p' was changed after backward"),
            std::string::npos);
  q.mutable_grad() = at::Tensor();
  p.sum().backward();
  p.sum().backward();
  EXPECT_NE(text_of<UsageError>([&] { client.step(1); }).find("'p' got two gradients"),
            std::string::npos);
  q.mutable_grad() = at::Tensor();
  p.sum().backward();
  client.step(1);
  EXPECT_TRUE(is(p, 0));
}

TEST(rpc_server_users, options_that_an_optimizer_refuses_are_told_to_who_joins) {
  Servers all(1, {.workers = 1, .optimizer = [](NamedTensors p) {
                    return make_adamw(std::move(p), {.beta1 = 2});
                  }});
  auto me = all.job.start("trainer0");
  const auto text = text_of<UsageError>([&] {
    rpc::ParameterClient(me, {{"p", parameter({1})}}, all.client(0));
  });
  EXPECT_NE(text.find("AdamW: betas are (2, 0.999)"), text.npos) << text;
}

TEST(rpc_server_users, a_rank_belongs_to_one_worker) {
  Servers all(1, {.workers = 2});
  auto me = all.job.start("trainer0"), twin = all.job.start("twin");
  rpc::ParameterClient client(me, {{"p", parameter({1})}}, all.client(0));
  auto text = text_of<UsageError>([&] {
    rpc::ParameterClient(twin, {{"p", parameter({1})}}, all.client(0));
  });
  EXPECT_NE(text.find("'twin' joins as worker 0, which is 'trainer0'"), text.npos) << text;
  text = text_of<UsageError>([&] {
    rpc::ParameterClient(twin, {{"p", parameter({1})}}, all.client(2));
  });
  EXPECT_NE(text.find("a worker of rank 2 at a parameter server for 2 workers"), text.npos) << text;
}

TEST(rpc_server_users, who_has_left_is_told_so) {
  const at::Tensor p = parameter({1});
  One one({{"p", p}});
  one.client.leave();
  EXPECT_NE(text_of<UsageError>([&] { one.client.step(1); }).find("worker 0 has left"),
            std::string::npos);
  EXPECT_TRUE(one.all.server(0).wait(Deadline::after(kPlenty)));
}

}  // namespace trireme::rpc_server_users_test
