// SPDX-License-Identifier: Apache-2.0
// Over which axes gradients are added, and over which of them ZeRO divides them: as a plan of
// meshes and layouts, and on ranks of a mesh whose axis cp, or ep, has two.
#include "trireme/train/gradients/gradient_families.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>

#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"
#include "trireme/comm/start/run.h"
#include "trireme/train/build/zero_setup.h"
#include "trireme/train/gradients/gradients.h"

namespace gradient_families_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string text_of(const GradientFamily& f) {
  return fmt::format("{} over {} [{} | {}] + {}", fmt::join(f.parameters, " "),
                     fmt::join(f.data, "×"), fmt::join(f.shards, "×"), fmt::join(f.replicas, "×"),
                     fmt::join(f.model, "×"));
}

std::vector<std::string> families(int world, const ParallelSizes& sizes) {
  const ParameterLayouts layouts = {
      {"norm", ParameterLayout::whole({4}, {{"tp", OnAxis::sum}})},
      {"up", {{4, 4}, {Box::whole({2, 4})}, {{"tp", OnAxis::split}}}},
      {"expert", {{4, 4, 4}, {Box::whole({2, 4, 4})}, {{"ep", OnAxis::split}}}}};
  std::vector<std::string> texts;
  for (const auto& f : gradient_families(MeshShape(world, parallel_axes(sizes)),
                                         {"plain", "norm", "up", "expert", "other"}, layouts))
    texts.push_back(text_of(f));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(train_gradient_families, are_one_where_data_is_the_only_axis) {
  EXPECT_EQ(families(4, {}), Texts{"plain norm up expert other over dp_shard [dp_shard | ] + "});
  EXPECT_EQ(
      families(4, {.dp_replicate = 2}),
      Texts{"plain norm up expert other over dp_replicate×dp_shard [dp_shard | dp_replicate] + "});
  EXPECT_EQ(families(1, {}), Texts{"plain norm up expert other over  [ | ] + "});
  EXPECT_EQ(families(2, {.pp = 2}), Texts{"plain norm up expert other over  [ | ] + "});
}

TEST(train_gradient_families, add_norms_over_the_ranks_that_hold_parts_of_layers_too) {
  EXPECT_EQ(families(8, {.tp = 2, .pp = 2}),
            (Texts{"plain up expert other over dp_shard [dp_shard | ] + ",
                   "norm over dp_shard [dp_shard | ] + tp"}));
}

TEST(train_gradient_families, count_ranks_with_other_positions_as_data) {
  EXPECT_EQ(families(16, {.dp_replicate = 2, .cp = 2, .tp = 2}),
            (Texts{"plain up expert other over dp_replicate×dp_shard×cp [dp_shard×cp | "
                   "dp_replicate] + ",
                   "norm over dp_replicate×dp_shard×cp [dp_shard×cp | dp_replicate] + tp"}));
}

TEST(train_gradient_families, add_experts_over_the_ranks_that_have_the_same_ones) {
  // Folded: ep lies across dp_shard × cp × tp, and edp is what is left of them.
  EXPECT_EQ(families(16, {.dp_replicate = 2, .cp = 2, .tp = 2, .ep = 4}),
            (Texts{"plain up other over dp_replicate×dp_shard×cp [dp_shard×cp | dp_replicate] + ",
                   "norm over dp_replicate×dp_shard×cp [dp_shard×cp | dp_replicate] + tp",
                   "expert over dp_replicate×edp [edp | dp_replicate] + "}));
  // An axis of its own: its ranks see other samples, and dense gradients are added over it.
  EXPECT_EQ(families(8, {.cp = 2, .ep = 2, .ep_is_an_axis = true}),
            (Texts{"plain norm up other over dp_shard×ep×cp [dp_shard×ep×cp | ] + ",
                   "expert over dp_shard×cp [dp_shard×cp | ] + "}));
}

// The ranks of a family's group hold the same parameter and together see every sample once.
TEST(train_gradient_families, groups_of_experts_are_the_ranks_with_one_place_on_ep) {
  const MeshShape mesh(16, parallel_axes({.dp_replicate = 2, .cp = 2, .tp = 2, .ep = 4}));
  const auto list =
      gradient_families(mesh, {"e"}, {{"e", {{8}, {Box::whole({2})}, {{"ep", OnAxis::split}}}}});
  const uint64_t set = mesh.set_of(list.at(0).data);
  for (int rank = 0; rank < mesh.world(); ++rank) {
    std::vector<int> same;
    for (int r = 0; r < mesh.world(); ++r)
      if (mesh.coordinate(r, "ep") == mesh.coordinate(rank, "ep")) same.push_back(r);
    auto members = mesh.members(rank, set);
    std::sort(members.begin(), members.end());
    EXPECT_EQ(members, same) << "rank " << rank;
  }
}

TEST(train_gradient_families, that_need_a_round_of_their_own_are_refused_by_name) {
  const MeshShape mesh(4, parallel_axes({.ep = 2}));
  const ParameterLayouts layouts = {
      {"blocks.0.experts.up", {{4}, {Box::whole({2})}, {{"ep", OnAxis::split}}}}};
  EXPECT_EQ(
      refusal([&] {
        check_one_round(mesh, {"wte", "blocks.0.experts.up"}, layouts);
      }),
      "the gradients of 'blocks.0.experts.up' are added over edp, and those of what all ranks "
      "hold over dp_shard: one run has one round of gradients a step, and experts are not a "
      "part of it yet. Train them in a loop of your own");
  check_one_round(mesh, {"wte"}, layouts);
}

// ── On ranks ────────────────────────────────────────────────────────────────────────────────────

/// Two parameters, whose gradients on rank r are multiples of 2^r: a sum tells who is in it.
struct Two {
  at::Tensor dense = torch::zeros({5}, torch::kDouble).requires_grad_();
  at::Tensor expert = torch::zeros({3}, torch::kDouble).requires_grad_();
  void backward(int rank) const {
    ((dense * torch::arange(1, 6)).sum() * std::exp2(rank) +
     (expert * torch::arange(1, 4)).sum() * std::exp2(rank))
        .backward();
  }
};

double sum_of_ranks(const std::vector<int>& ranks) {
  double sum = 0;
  for (const int r : ranks) sum += std::exp2(r);
  return sum;
}

void expect_sum(const at::Tensor& gradient, int64_t n, double factor) {
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(gradient.equal(torch::arange(1, n + 1).to(torch::kDouble) * factor)) << gradient;
}

TEST(train_gradient_families, gradients_of_ranks_with_other_positions_are_added) {
  run_threads(8, [](Group world) {
    const DeviceMesh mesh(world, parallel_axes({.dp_shard = 2, .cp = 2, .tp = 2}));
    const GradientFamily family = dense_family(mesh.shape());
    const Group group = group_over(mesh, family.data);
    EXPECT_EQ(group.size(), 4);
    const double factor = sum_of_ranks(mesh.ranks({"dp_shard", "cp"}));
    Two whole;
    auto gradients = whole_gradients({{"dense", whole.dense}, {"expert", whole.expert}}, {}, group);
    gradients->open(1);
    gradients->begin_backward(0, 0);
    whole.backward(world.rank());
    gradients->close();
    expect_sum(whole.dense.grad(), 5, factor);
    expect_sum(whole.expert.grad(), 3, factor);
  });
}

TEST(train_gradient_families, zero_divides_gradients_over_the_ranks_with_other_positions) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    run_threads(8, [&](Group world) {
      const DeviceMesh mesh(world, parallel_axes({.dp_replicate = 2, .dp_shard = 2, .cp = 2}));
      const ShardGroups groups = shard_groups_of(mesh, dense_family(mesh.shape()));
      EXPECT_EQ(groups.shards.size(), 4);
      EXPECT_EQ(groups.replicas.size(), 2);
      EXPECT_EQ(groups.world.size(), 8);
      Two two;
      ShardedGradientOptions options;
      options.stage = stage;
      auto gradients =
          sharded_gradients({{"dense", two.dense}, {"expert", two.expert}}, {}, groups, options);
      gradients->open(1);
      gradients->begin_backward(0, 0);
      two.backward(world.rank());
      gradients->close();
      for (const auto& [name, shard] : gradients->owned()) {
        if (shard.numel() == 0) continue;
        const int64_t begin = gradients->sharded()->begin_of(name);
        EXPECT_TRUE(shard.grad().equal(
            torch::arange(begin + 1, begin + 1 + shard.numel()).to(torch::kDouble) * 255.0))
            << name;
      }
    });
}

// Each family in its own round, over its own ranks, beside the other.
TEST(train_gradient_families, experts_are_added_over_their_ranks_beside_dense_ones_over_all) {
  run_threads(8, [](Group world) {
    const DeviceMesh mesh(world, parallel_axes({.dp_shard = 4, .cp = 2, .ep = 4}));
    Two two;
    const ParameterLayouts layouts = {
        {"expert", {{12}, {Box::whole({3})}, {{"ep", OnAxis::split}}}}};
    const auto list = gradient_families(mesh.shape(), {"dense", "expert"}, layouts);
    ASSERT_EQ(list.size(), 2u);
    std::vector<std::unique_ptr<Gradients>> rounds;
    rounds.push_back(whole_gradients({{"dense", two.dense}}, {}, group_over(mesh, list[0].data)));
    rounds.push_back(whole_gradients({{"expert", two.expert}}, {}, group_over(mesh, list[1].data)));
    for (auto& round : rounds) round->open(1);
    two.backward(world.rank());
    for (auto& round : rounds) round->close();
    expect_sum(two.dense.grad(), 5, 255);
    expect_sum(two.expert.grad(), 3, sum_of_ranks({world.rank() % 4, world.rank() % 4 + 4}));
  });
}

// A run takes its groups from the plan: they are those of dp as long as cp is 1, and would follow.
TEST(train_gradient_families, a_run_shards_over_what_the_plan_says) {
  const PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder), {"zero_optimization.stage=2"});
  run_threads(4, [&](Group world) {
    const PrecisionPlan precision = plan_precision(config);
    const DeviceMesh plain(world, parallel_axes({}));
    EXPECT_EQ(set_up_zero(config, plain, precision, {}).groups.shards.size(), 4);
    const DeviceMesh mesh(world, parallel_axes({.dp_shard = 2, .cp = 2}));
    const ZeroSetup zero = set_up_zero(config, mesh, precision, {});
    EXPECT_EQ(zero.groups.shards.size(), 4);
    EXPECT_EQ(zero.groups.world.size(), 4);
  });
}

}  // namespace
}  // namespace gradient_families_test
