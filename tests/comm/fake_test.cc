// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"

namespace fake_test {

using namespace trireme;

namespace {

Group fake_world(int rank, int size, std::string init_method = "env://") {
  InitOptions options;
  options.backend = "fake";
  options.init_method = std::move(init_method);
  options.rank = rank;
  options.world_size = size;
  return init_process_group(options);
}

at::Tensor numbers(int64_t n) { return at::arange(n, at::kFloat); }

}  // namespace

TEST(comm_fake, a_world_of_any_size_without_store_or_peers) {
  for (const char* method : {"env://", "tcp://256.0.0.1:1", "tcp://nobody.invalid:29500"}) {
    Group g = fake_world(3, 512, method);
    EXPECT_EQ(g.rank(), 3);
    EXPECT_EQ(g.size(), 512);
    EXPECT_EQ(g.backend(), "fake");
    EXPECT_EQ(g.shared_bytes(), 0);
    g.barrier();
  }
  EXPECT_EQ(fake_world(0, 1'000'000).size(), 1'000'000);
  EXPECT_THROW(fake_world(512, 512), UsageError);
  EXPECT_THROW(fake_world(0, -1, "tcp://localhost:1"), UsageError);
  EXPECT_THROW(fake_world(-1, 4), UsageError);
}

TEST(comm_fake, env_says_who_it_is_where_the_options_do_not) {
  const char* const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                               "MASTER_ADDR"};
  const char* const values[] = {"5", "64", "1", "4", "nobody.invalid"};
  for (int i = 0; i < 5; ++i) ::setenv(names[i], values[i], 1);
  InitOptions options;
  options.backend = "fake";
  Group g = init_process_group(options);
  for (const char* name : names) ::unsetenv(name);
  EXPECT_EQ(g.rank(), 5);
  EXPECT_EQ(g.size(), 64);
}

TEST(comm_fake, tensors_stay_as_they_are) {
  Group g = fake_world(2, 4);
  at::Tensor t = numbers(6);
  g.all_reduce(t).wait();
  g.all_reduce(t, ReduceOp::avg).wait();
  g.broadcast(t, 1).wait();
  g.reduce(t, 0).wait();
  g.send(t, 0).wait();
  Work got = g.recv(t, 3, 5);
  got.wait();
  EXPECT_TRUE(got.is_completed());
  EXPECT_EQ(got.source(), 3);
  EXPECT_EQ(g.recv(t, kAnySource).source(), 0);
  EXPECT_EQ(fake_world(0, 4).recv(t, kAnySource).source(), 1);
  EXPECT_TRUE(t.equal(numbers(6)));
  g.all_reduce(t, premul_sum(2)).wait();  // the factor is this rank's own
  EXPECT_TRUE(t.equal(numbers(6) * 2));
}

TEST(comm_fake, own_parts_go_to_their_places) {
  Group g = fake_world(2, 4);
  at::Tensor all = at::full({12}, -1.0f);
  g.all_gather_into_tensor(all, numbers(3)).wait();
  EXPECT_TRUE(all.equal(numbers(3).repeat({4})));
  std::vector<at::Tensor> parts;
  for (int r = 0; r < 4; ++r) parts.push_back(at::full({3}, -1.0f));
  g.all_gather(parts, numbers(3)).wait();
  for (const auto& p : parts) EXPECT_TRUE(p.equal(numbers(3)));
  for (auto& p : parts) p.fill_(-1);
  g.gather(parts, numbers(3), 2).wait();
  for (const auto& p : parts) EXPECT_TRUE(p.equal(numbers(3)));
  g.gather({}, numbers(3), 0).wait();

  at::Tensor part = at::full({3}, -1.0f);
  g.reduce_scatter_tensor(part, numbers(12)).wait();
  EXPECT_TRUE(part.equal(numbers(12).narrow(0, 6, 3)));
  part.fill_(-1);
  g.scatter(part, {}, 0).wait();
  EXPECT_TRUE(part.eq(-1).all().item<bool>());
  for (int r = 0; r < 4; ++r) parts[size_t(r)].fill_(r);
  g.scatter(part, parts, 2).wait();
  EXPECT_TRUE(part.eq(2).all().item<bool>());

  at::Tensor out = at::full({8}, -1.0f);
  g.all_to_all_single(out, numbers(8)).wait();
  EXPECT_TRUE(out.equal(numbers(8)));
  out.fill_(-1);
  g.all_to_all_single(out, numbers(6), {3, 0, 1, 4}, {1, 2, 3, 0}).wait();
  EXPECT_TRUE(out.equal(at::tensor({0.f, 0.f, 0.f, 3.f, 0.f, 0.f, 0.f, 0.f})));
}

TEST(comm_fake, every_dtype_device_and_reduction) {
  Group g = fake_world(0, 8);
  for (auto type : {at::kBool, at::kComplexDouble, at::kBFloat16, at::kQInt8})
    EXPECT_TRUE(g.supports(Collective::all_reduce, type, at::kCUDA));
  EXPECT_TRUE(g.supports(ReduceOp::avg, at::kLong));
  // Tensors without memory: sizing a model that does not fit.
  at::Tensor huge = g.empty({int64_t{1} << 40}, at::TensorOptions().device(at::kMeta));
  g.all_reduce(huge).wait();
  at::Tensor whole = at::empty({int64_t{1} << 43}, at::TensorOptions().device(at::kMeta));
  g.all_gather_into_tensor(whole, huge).wait();
  EXPECT_EQ(fake_traffic(g).total().bytes, (uint64_t{1} << 42) + (uint64_t{1} << 45));
}

TEST(comm_fake, traffic_is_counted_by_operation_and_group) {
  Group g = fake_world(1, 4);
  at::Tensor t = numbers(100), all = at::empty({400});
  g.all_reduce(t);
  g.all_reduce(t);
  g.all_gather_into_tensor(all, t);
  g.reduce_scatter_tensor(t, all);
  g.broadcast(t, 0);
  g.all_to_all_single(all, all.clone());
  g.send(t, 0);
  g.recv(t, 0);
  g.barrier();
  Group pair = g.new_group({1, 3});
  pair.all_reduce(t);
  const auto traffic = fake_traffic(g);
  auto is = [&](const char* op, uint64_t calls, uint64_t bytes) {
    const auto at = traffic.operations.find(op);
    ASSERT_TRUE(at != traffic.operations.end()) << op;
    EXPECT_EQ(at->second.calls, calls) << op;
    EXPECT_EQ(at->second.bytes, bytes) << op;
  };
  is("all_reduce", 2, 800);
  is("reduce_scatter", 1, 1600);
  is("broadcast", 1, 400);
  is("all_to_all", 1, 1600);
  is("send", 1, 400);
  is("recv", 1, 400);
  is("barrier", 1, 0);
  is("all_gather", 2, 1600 + 4 * 16);  // new_group asked whether all mean the same ranks
  const auto by_group = fake_traffic_by_group(pair);
  EXPECT_EQ(by_group.size(), 2u);
  EXPECT_EQ(by_group.at(pair.name()).total().bytes, 400u);
  EXPECT_EQ(fake_traffic(pair).operations.size(), 1u);
  run_threads(1, [](Group local) { EXPECT_THROW(fake_traffic(local), UsageError); });
  EXPECT_THROW(fake_traffic(Group()), UsageError);
}

TEST(comm_fake, groups_of_some_ranks_know_their_members) {
  Group g = fake_world(5, 8);
  Group some = g.new_group({6, 5, 2});
  EXPECT_EQ(some.rank(), 1);
  EXPECT_EQ(some.size(), 3);
  EXPECT_EQ(some.world_ranks(), (std::vector<int>{6, 5, 2}));
  Group inner = some.new_group({1, 2});
  EXPECT_EQ(inner.world_ranks(), (std::vector<int>{5, 2}));
  EXPECT_FALSE(g.new_group({0, 1}));
  EXPECT_EQ(g.split(1).size(), 8);  // all seem to give this rank's color
}

TEST(comm_fake, an_aborted_group_says_why) {
  Group g = fake_world(0, 2);
  g.abort("enough");
  at::Tensor t = numbers(3);
  try {
    g.all_reduce(t);
    FAIL() << "nothing thrown";
  } catch (const Aborted& e) {
    EXPECT_STREQ(e.what(), "enough");
    EXPECT_EQ(e.rank(), 0);
  }
  EXPECT_THROW(g.barrier(), Aborted);
}

}  // namespace fake_test
