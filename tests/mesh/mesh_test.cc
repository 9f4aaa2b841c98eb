// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/mesh.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/comm/start/run.h"

namespace mesh_test {

using namespace trireme;

namespace {

void that(bool ok, const char* what) { check<Error>(ok, "not so: {}", what); }
#define THAT(...) that((__VA_ARGS__), #__VA_ARGS__)

/// The sum of world ranks over a group says who is in it.
int64_t rank_sum(Group group, int world_rank) {
  at::Tensor t = at::full({1}, world_rank, at::kLong);
  group.all_reduce(t).wait();
  return t.item<int64_t>();
}

Group fake_world(int rank, int size) {
  InitOptions options;
  options.backend = "fake";
  options.rank = rank;
  options.world_size = size;
  return init_process_group(options);
}

}  // namespace

TEST(mesh_mesh, each_axis_and_set_has_its_group) {
  run_threads(8, [](Group world) {
    DeviceMesh mesh(world, {{"pp", 2}, {"dp_shard", 2}, {"tp", 2}});
    const int r = world.rank();
    THAT(mesh.rank() == r && mesh.size() == 8);
    THAT(mesh.coordinate("pp") == r / 4 && mesh.coordinate("tp") == r % 2);
    Group tp = mesh.group("tp");
    THAT(tp.size() == 2 && tp.rank() == r % 2 && tp.world_ranks() == mesh.ranks({"tp"}));
    THAT(rank_sum(tp, r) == (r & ~1) * 2 + 1);
    THAT(tp.name() == fmt::format("world/1.tp.{}", r & ~1));
    Group pp = mesh.group("pp");
    THAT(pp.rank() == r / 4 && rank_sum(pp, r) == (r % 4) * 2 + 4);
    Group both = mesh.group({"tp", "dp_shard"});  // in the mesh's order
    THAT(both.size() == 4 && both.rank() == r % 4);
    THAT(rank_sum(both, r) == (r / 4) * 16 + 6);
    THAT(rank_sum(mesh.group("dp"), r) == mesh.ranks({"dp"})[0] + mesh.ranks({"dp"})[1]);
  });
}

TEST(mesh_mesh, processes_have_their_groups_as_well) {
  SpawnOptions options;
  options.args = {std::string("--gtest_filter=") + "mesh_mesh.processes_have_their_groups_as_well"};
  spawn(
      4,
      [](Group world) {
        DeviceMesh mesh(world, {{"pp", 1}, {"dp_shard", 2}, {"tp", 2}});
        const int r = world.rank();
        THAT(rank_sum(mesh.group("tp"), r) == (r & ~1) * 2 + 1);
        THAT(rank_sum(mesh.group("dp"), r) == (r & 1) * 2 + 2);
        THAT(rank_sum(mesh.group("pp"), r) == r);
        THAT(check_placement(mesh).empty());
      },
      options);
}

TEST(mesh_mesh, groups_are_made_once_and_shared_by_copies_and_sub_meshes) {
  run_threads(4, [](Group world) {
    DeviceMesh mesh(world, {{"dp_replicate", 1}, {"dp_shard", 2}, {"tp", 2}}), copy = mesh;
    auto* tp = mesh.group("tp").get();
    THAT(copy.group("tp").get() == tp && mesh["tp"].group().get() == tp);
    THAT(mesh.group("dp").get() == mesh.group("dp_shard").get());  // the other has one rank
    THAT(mesh.group().get() == world.get());
    THAT(mesh.group({"dp_shard", "tp"}).get() == world.get());  // all axes
    DeviceMesh other(world, {{"a", 2}, {"b", 2}});
    THAT(other.group("b").get() != tp &&
         other.group("b").name() == fmt::format("world/2.b.{}", world.rank() & ~1));
  });
}

TEST(mesh_mesh, an_axis_of_one_rank_asks_nobody) {
  run_threads(4, [](Group world) {
    DeviceMesh mesh(world, {{"cp", 1}, {"tp", 4}});
    if (world.rank() == 2) {  // the others do not call
      Group alone = mesh.group("cp");
      THAT(alone.size() == 1 && alone.rank() == 0);
      THAT(rank_sum(alone, 7) == 7);
      THAT(alone.world_ranks() == std::vector<int>{2});
    }
    THAT(rank_sum(mesh.group("tp"), 1) == 4);
  });
}

TEST(mesh_mesh, a_sub_mesh_has_its_axes_alone) {
  run_threads(8, [](Group world) {
    DeviceMesh mesh(world, parallel_axes({.tp = 2, .pp = 2}));
    DeviceMesh stage = mesh.slice({"dp", "tp"});
    const int r = world.rank();
    THAT(stage.size() == 4 && stage.rank() == r % 4 && stage["tp"].rank() == r % 2);
    THAT(stage.size("dp") == 2 && stage.coordinate("dp") == r / 2 % 2);
    THAT(rank_sum(stage.group(), r) == (r / 4) * 16 + 6);
    try {
      stage.group("pp");
      fail<Error>("not refused");
    } catch (const UsageError& e) {
      THAT(std::string(e.what()) == "pp is not in this sub-mesh of dp_replicate+dp_shard+tp");
    }
  });
}

TEST(mesh_mesh, ranks_that_ask_for_different_groups_are_told_both) {
  std::atomic<int> told{0};
  run_threads(4, [&](Group world) {
    DeviceMesh mesh(world, {{"dp_shard", 2}, {"tp", 2}});
    try {
      mesh.group(world.rank() == 3 ? "dp_shard" : "tp");
    } catch (const Mismatch& e) {
      const std::string text = e.what();
      THAT(text.find("mesh_test.cc") != std::string::npos);
      THAT(text.find("rank 3") != std::string::npos);
      THAT(text.find("for the group of tp") != std::string::npos ||
           text.find("for that of tp") != std::string::npos);
      THAT(text.find("dp_shard") != std::string::npos);
      ++told;
    }
    // The world is as it was: one order for all.
    mesh.make_groups();
    THAT(rank_sum(mesh.group("tp"), 1) == 2);
    THAT(rank_sum(mesh.group("dp_shard"), 1) == 2);
  });
  EXPECT_EQ(told, 4);
}

TEST(mesh_mesh, groups_of_disjoint_and_crossing_axes_work_at_once) {
  run_threads(8, [](Group world) {
    DeviceMesh mesh(world, {{"a", 2}, {"b", 2}, {"c", 2}});
    mesh.make_groups();
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i)
      for (const char* axis : {"a", "b", "c"}) {
        tensors.push_back(at::full({1000}, mesh.coordinate(axis) + i, at::kLong));
        works.push_back(mesh.group(axis).all_reduce(tensors.back()));
      }
    for (size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      THAT(tensors[i].eq(static_cast<int64_t>(i / 3) * 2 + 1).all().item<bool>());
    }
  });
}

// A rank that fails does not know in which group its peers wait for it.
TEST(mesh_mesh, aborting_a_mesh_ends_what_waits_in_any_of_its_groups) {
  for (const char* backend : {"local", "gloo"}) {
    std::atomic<int> posted{0};
    std::vector<std::string> said(4), later(4);
    const auto error_of = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const Error& e) {
        return e.what();
      }
      return "";
    };
    run_threads(4,
                [&](Group world) {
                  const DeviceMesh mesh(world, {{"pp", 2}, {"tp", 2}});
                  mesh.make_groups();
                  const int me = world.rank();
                  // Ranks 1 and 2 are rank 0's peers, in two groups; rank 3 is in neither of these.
                  Group with[] = {world, mesh.group("tp"), mesh.group("pp"), world};
                  Group& mine = with[me];
                  at::Tensor t = at::ones({4});
                  if (me == 0) {
                    while (posted < 3) std::this_thread::yield();
                    DeviceMesh(mesh).abort("the pump is broken");
                  } else {
                    Work work = mine.all_reduce(t);
                    ++posted;
                    said[size_t(me)] = error_of([&] { work.wait(); });
                  }
                  later[size_t(me)] = error_of([&] { mine.all_reduce(t).wait(); });
                },
                {.timeout = std::chrono::seconds(20), .backend = backend});
    for (size_t r = 0; r < 4; ++r) {
      if (r > 0) {
        EXPECT_NE(said[r].find("the pump is broken"), std::string::npos) << r << ": " << said[r];
      }
      EXPECT_NE(later[r].find("the pump is broken"), std::string::npos) << r << ": " << later[r];
    }
  }
}

TEST(mesh_mesh, a_mesh_of_a_group_of_some_ranks) {
  run_threads(6, [](Group world) {
    Group half = world.split(world.rank() % 2);
    DeviceMesh mesh(half, {{"x", 3}, {"y", 1}});
    THAT(mesh.group("x").get() == half.get());
    DeviceMesh wide(world, {{"x", 3}, {"y", 2}});
    THAT(wide.group("x").world_ranks() == half.world_ranks());
  });
}

TEST(mesh_mesh, what_does_not_fit_the_world_is_refused_on_every_rank) {
  run_threads(2, [](Group world) {
    try {
      DeviceMesh(world, {{"dp_shard", 2}, {"tp", 3}});
      fail<Error>("not refused");
    } catch (const UsageError& e) {
      THAT(std::string(e.what()) == "dp_shard 2 × tp 3 = 6, but the world has 2 ranks");
    }
    world.barrier();
  });
  EXPECT_THROW(DeviceMesh(Group(), {{"tp", 1}}), UsageError);
  EXPECT_THROW(DeviceMesh().size(), UsageError);
}

TEST(mesh_mesh, a_world_of_512_ranks_is_validated_in_one_process) {
  const ParallelSizes sizes{.dp_replicate = 2, .cp = 2, .tp = 8, .pp = 4, .ep = 8};
  std::map<std::string, std::set<std::vector<int>>> groups;
  for (int rank = 0; rank < 512; ++rank) {
    Group world = fake_world(rank, 512);
    DeviceMesh mesh(world, parallel_axes(sizes));
    mesh.make_groups();
    for (const char* axis : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "edp", "ep", "dp"}) {
      Group g = mesh.group(axis);
      ASSERT_EQ(g.size(), mesh.size(axis));
      ASSERT_EQ(g.rank(), mesh.coordinate(axis));
      ASSERT_EQ(g.world_ranks()[size_t(g.rank())], rank);
      groups[axis].insert(g.world_ranks());
    }
    if (rank) continue;
    at::Tensor t = at::ones({1000});
    mesh.group("tp").all_reduce(t).wait();
    mesh.group("dp").all_reduce(t).wait();
    mesh.group("dp").all_reduce(t).wait();
    const auto traffic = fake_traffic(mesh.group("dp"));
    EXPECT_EQ(traffic.operations.at("all_reduce").calls, 2u);
    EXPECT_EQ(traffic.total().bytes, 8000u);
    EXPECT_EQ(fake_traffic_by_group(world).at(mesh.group("tp").name()).total().bytes, 4000u);
  }
  // Seen from all ranks the groups of an axis divide the world.
  EXPECT_EQ(groups["tp"].size(), 64u);
  EXPECT_EQ(groups["pp"].size(), 128u);
  EXPECT_EQ(groups["ep"].size(), 64u);
  EXPECT_EQ(groups["dp"].size(), 64u);
  for (const auto& [axis, all] : groups) {
    std::set<int> seen;
    for (const auto& ranks : all) seen.insert(ranks.begin(), ranks.end());
    EXPECT_EQ(seen.size(), 512u) << axis;
    EXPECT_EQ(all.size() * all.begin()->size(), 512u) << axis;
  }
}

TEST(mesh_mesh, it_describes_itself) {
  DeviceMesh mesh(fake_world(5, 8), {{"pp", 2}, {"dp_shard", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.describe(),
            "mesh: pp 2 × dp_shard 2 × tp 2 = 8 ranks\n"
            "rank 5: pp 1, dp_shard 0, tp 1\n"
            "  pp: 4 groups of 2: 0 4 | 1 5 | 2 6 | 3 7\n"
            "  dp_shard: 4 groups of 2: 0 2 | 1 3 | 4 6 | 5 7\n"
            "  tp: 4 groups of 2: 0 1 | 2 3 | 4 5 | 6 7");
  EXPECT_LT(DeviceMesh(fake_world(5, 512), parallel_axes({.tp = 4})).describe().size(), 2000u);
}

TEST(mesh_mesh, placement_is_checked_and_told_once) {
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view text) {
    std::lock_guard lock(mutex);
    lines.emplace_back(text);
  });
  run_threads(4, [&](Group world) {
    DeviceMesh mesh(world, {{"dp_shard", 2}, {"tp", 2}});
    THAT(gather_hosts(world) == std::vector<int>(4, 0));  // local: one host
    THAT(check_placement(mesh).empty());
    THAT(!check_placement(mesh, {0, 1, 1, 1}).empty());
  });
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(
      lines[0].rfind("1 of 2 tp groups span hosts; the first has ranks 0, 1 on hosts 0, 1", 0), 0u)
      << lines[0];
}

}  // namespace mesh_test
