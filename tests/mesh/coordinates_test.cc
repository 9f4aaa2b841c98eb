// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/coordinates.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/support/refusals.h"

namespace coordinates_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Every shape of up to four axes with sizes from 1 to `most`.
void each_shape(int most, const std::function<void(const std::vector<MeshAxis>&, int world)>& f) {
  const char* const names[] = {"a", "b", "c", "d"};
  std::vector<MeshAxis> axes;
  std::function<void(int)> grow = [&](int world) {
    if (!axes.empty()) f(axes, world);
    if (axes.size() == 4) return;
    for (int size = 1; size <= most; ++size) {
      axes.push_back({names[axes.size()], size});
      grow(world * size);
      axes.pop_back();
    }
  };
  grow(1);
}

void expect_partition(const MeshShape& m, uint64_t set) {
  std::set<int> seen;
  for (const auto& group : m.groups(set)) {
    ASSERT_EQ(static_cast<int>(group.size()), m.size(set));
    for (size_t i = 0; i < group.size(); ++i) {
      ASSERT_TRUE(seen.insert(group[i]).second) << group[i] << " is in two groups";
      ASSERT_EQ(m.coordinate(group[i], set), static_cast<int>(i));
      ASSERT_EQ(m.members(group[i], set), group);
    }
  }
  ASSERT_EQ(static_cast<int>(seen.size()), m.world());
}

}  // namespace

TEST(mesh_coordinates, ranks_and_coordinates_are_one_to_one) {
  size_t shapes = 0;
  each_shape(4, [&](const std::vector<MeshAxis>& axes, int world) {
    const MeshShape m(world, axes);
    ++shapes;
    std::set<std::vector<int>> seen;
    for (int r = 0; r < world; ++r) {
      const std::vector<int> at = m.coordinates(r);
      ASSERT_EQ(m.rank_at(at), r);
      ASSERT_TRUE(seen.insert(at).second);
      for (size_t i = 0; i < axes.size(); ++i) {
        ASSERT_EQ(m.coordinate(r, axes[i].name), at[i]);
        ASSERT_GE(at[i], 0);
        ASSERT_LT(at[i], axes[i].size);
      }
    }
  });
  EXPECT_EQ(shapes, 4u + 16 + 64 + 256);
}

TEST(mesh_coordinates, the_last_axis_is_fastest) {
  each_shape(3, [&](const std::vector<MeshAxis>& axes, int world) {
    const MeshShape m(world, axes);
    for (int r = 0; r + 1 < world; ++r) ASSERT_LT(m.coordinates(r), m.coordinates(r + 1));
  });
}

TEST(mesh_coordinates, groups_of_every_set_divide_the_world) {
  each_shape(3, [&](const std::vector<MeshAxis>& axes, int world) {
    const MeshShape m(world, axes);
    for (uint64_t set = 0; set < uint64_t{1} << axes.size(); ++set) {
      expect_partition(m, set);
      // Two ranks of a group differ on its axes alone.
      for (const auto& group : m.groups(set)) {
        ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
        for (size_t i = 0; i < axes.size(); ++i)
          if (!(set >> i & 1)) {
            for (int r : group) ASSERT_EQ(m.coordinates(r)[i], m.coordinates(group[0])[i]);
          }
      }
    }
  });
}

TEST(mesh_coordinates, neighbours_are_one_step_away_and_go_around) {
  each_shape(3, [&](const std::vector<MeshAxis>& axes, int world) {
    const MeshShape m(world, axes);
    for (size_t i = 0; i < axes.size(); ++i)
      for (int r = 0; r < world; ++r) {
        const uint64_t set = uint64_t{1} << i;
        const int next = m.neighbour(r, set, 1);
        ASSERT_EQ(m.neighbour(next, set, -1), r);
        ASSERT_EQ(m.neighbour(r, set, axes[i].size), r);
        std::vector<int> want = m.coordinates(r);
        want[i] = (want[i] + 1) % axes[i].size;
        ASSERT_EQ(m.coordinates(next), want);
      }
  });
}

TEST(mesh_coordinates, one_size_is_found) {
  each_shape(4, [&](const std::vector<MeshAxis>& axes, int world) {
    for (size_t i = 0; i < axes.size(); ++i) {
      std::vector<MeshAxis> open = axes;
      open[i].size = -1;
      const MeshShape m(world, open);
      ASSERT_EQ(m.axes()[i].size, axes[i].size);
    }
  });
}

TEST(mesh_coordinates, what_does_not_fit_is_told_with_every_factor_and_the_product) {
  EXPECT_EQ(refusal([] {
              MeshShape(8, {{"dp_shard", 2}, {"tp", 3}, {"pp", 2}});
            }),
            "dp_shard 2 × tp 3 × pp 2 = 12, but the world has 8 ranks");
  EXPECT_EQ(refusal([] { MeshShape(1, {{"tp", 2}}); }), "tp 2 = 2, but the world has 1 rank");
  EXPECT_EQ(refusal([] {
              MeshShape(8, {{"dp_shard", -1}, {"tp", 3}});
            }),
            "dp_shard -1 × tp 3: the given sizes multiply to 3, but the world has 8 ranks, which "
            "is not divisible by that");
  EXPECT_EQ(refusal([] {
              MeshShape(4, {{"dp_shard", -1}, {"tp", 8}});
            }),
            "dp_shard -1 × tp 8: the given sizes multiply to 8, but the world has 4 ranks, which "
            "is not divisible by that");
  EXPECT_EQ(refusal([] {
              MeshShape(8, {{"dp_shard", -1}, {"tp", -1}});
            }),
            "dp_shard -1 × tp -1: two sizes are -1; only one can be derived");
  EXPECT_EQ(refusal([] {
              MeshShape(8, {{"dp", 0}, {"tp", 8}});
            }),
            "dp 0 × tp 8: the size of dp must be -1 or at least 1");
  const int big = 1 << 30;
  EXPECT_EQ(refusal([] {
              MeshShape(8, {{"a", big}, {"b", big}, {"c", big}});
            }),
            "a 1073741824 × b 1073741824 × c 1073741824 = more than 2^31, but the world has 8 "
            "ranks");
  EXPECT_EQ(
      refusal([] { MeshShape(8, parallel_axes({.tp = 2, .ep = 3})); }),
      "edp -1 × ep 3 × etp 1: the given sizes multiply to 3, but dp_shard 4 × cp 1 × tp 2 = 8, "
      "which is not divisible by that");
}

TEST(mesh_coordinates, names_are_checked) {
  EXPECT_EQ(refusal([] { MeshShape(4, {{"tp", 2}, {"tp", 2}}); }), "two axes are named 'tp'");
  EXPECT_EQ(refusal([] { MeshShape(4, {{"", 4}}); }), "an axis without a name");
  EXPECT_EQ(refusal([] { MeshShape(4, std::vector<MeshAxis>{}); }), "a mesh of no axes");
  const MeshShape m(4, {{"dp_shard", 2}, {"tp", 2}});
  EXPECT_EQ(refusal([&] { m.size("pp"); }), "the mesh has no axis 'pp'. It has dp_shard, tp");
  EXPECT_NE(refusal([] { MeshShape(4, MeshAxes({{"x", 4}}, {}, {{"x", {"x"}}})); }), "");
  EXPECT_NE(refusal([&] { m.coordinate(4, "tp"); }), "");
  EXPECT_NE(refusal([&] { m.coordinate(-1, "tp"); }), "");
  EXPECT_NE(refusal([&] { m.rank_at({0}); }), "");
  EXPECT_NE(refusal([&] { m.rank_at({0, 2}); }), "");
}

TEST(mesh_coordinates, flat_sets_take_what_the_mesh_has) {
  const MeshShape m(24, {{"pp", 2}, {"dp_replicate", 2}, {"dp_shard", 3}, {"cp", 1}, {"tp", 2}});
  EXPECT_EQ(m.size("dp"), 6);
  EXPECT_EQ(m.size("dp_shard_cp"), 3);
  EXPECT_EQ(m.size("dp_cp"), 6);
  EXPECT_EQ(m.members(13, m.set_of("dp")), (std::vector<int>{13, 15, 17, 19, 21, 23}));
  EXPECT_EQ(m.coordinate(23, "dp"), 5);
  EXPECT_EQ(m.set_of({"tp", "pp"}), m.set_of({"pp", "tp"}));
  const MeshShape small(4, {{"dp_shard", 2}, {"tp", 2}});
  EXPECT_EQ(small.set_of("dp"), small.set_of("dp_shard"));
  const MeshShape own(4, {{"dp", 2}, {"tp", 2}});  // an axis of that name wins
  EXPECT_EQ(own.size("dp"), 2);
  const MeshShape named(8, MeshAxes({{"x", 2}, {"y", 2}, {"z", 2}}, {}, {{"outer", {"y", "x"}}}));
  EXPECT_EQ(named.members(1, named.set_of("outer")), (std::vector<int>{1, 3, 5, 7}));
}

TEST(mesh_coordinates, the_usual_axes_put_tensor_parallel_ranks_side_by_side) {
  const MeshShape m(64, parallel_axes({.dp_replicate = 2, .cp = 2, .tp = 4, .pp = 2}));
  EXPECT_EQ(m.describe(), "pp 2 × dp_replicate 2 × dp_shard 2 × cp 2 × tp 4 = 64 ranks");
  EXPECT_EQ(m.members(9, m.set_of("tp")), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(m.members(9, m.set_of("pp")), (std::vector<int>{9, 41}));
}

TEST(mesh_coordinates, experts_fold_over_data_context_and_tensor) {
  for (int dp : {1, 2, 4})
    for (int cp : {1, 2})
      for (int tp : {1, 2})
        for (int pp : {1, 2})
          for (int etp : {1, 2})
            for (int ep : {2, 4, 8}) {
              if (etp > 1 && etp != tp) continue;
              if (dp * cp * tp % (ep * etp)) continue;
              const int world = pp * dp * cp * tp;
              const MeshShape m(
                  world, parallel_axes(
                             {.dp_shard = dp, .cp = cp, .tp = tp, .pp = pp, .ep = ep, .etp = etp}));
              EXPECT_EQ(m.size("ep"), ep);
              EXPECT_EQ(m.size("edp") * ep * etp, dp * cp * tp);
              for (const auto& names : std::vector<std::vector<std::string>>{
                       {"ep"},
                       {"edp"},
                       {"etp"},
                       {"ep", "edp"},
                       {"edp", "ep", "etp"},
                       {"pp", "ep"},
                       {"pp", "dp_replicate", "edp", "ep", "etp"}})
                expect_partition(m, m.set_of(names));
              for (int r = 0; r < world; ++r) {
                // Experts stay inside a pipeline stage; an expert's tensor ranks are tp's.
                for (int peer : m.members(r, m.set_of("ep")))
                  EXPECT_EQ(m.coordinate(peer, "pp"), m.coordinate(r, "pp"));
                if (etp == tp) {
                  EXPECT_EQ(m.members(r, m.set_of("etp")), m.members(r, m.set_of("tp")));
                }
              }
            }
  const MeshShape m(8, parallel_axes({.tp = 2, .ep = 4}));
  EXPECT_EQ(m.members(5, m.set_of("ep")), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(m.members(5, m.set_of("edp")), (std::vector<int>{1, 5}));
  EXPECT_EQ(
      m.describe(),
      "pp 1 × dp_replicate 1 × dp_shard 4 × cp 1 × tp 2 = 8 ranks, dp_shard × cp × tp also as "
      "edp 2 × ep 4 × etp 1");
  EXPECT_EQ(refusal([&] {
              m.set_of({"ep", "tp"});
            }),
            "tp+ep: these axes divide the same ranks in two ways; use the axes of one way only");
  EXPECT_NE(refusal([] { parallel_axes({.tp = 4, .ep = 2, .etp = 2}); }), "");
}

TEST(mesh_coordinates, experts_may_be_an_axis_of_their_own) {
  const MeshShape m(16, parallel_axes({.tp = 2, .ep = 4, .ep_is_an_axis = true}));
  EXPECT_EQ(m.describe(), "pp 1 × dp_replicate 1 × dp_shard 2 × ep 4 × cp 1 × tp 2 = 16 ranks");
  EXPECT_EQ(m.members(3, m.set_of("ep")), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(m.size(m.set_of({"ep", "tp"})), 8);
}

TEST(mesh_coordinates, a_fold_may_leave_out_axes_in_between) {
  const MeshShape m(24,
                    MeshAxes({{"a", 4}, {"b", 3}, {"c", 2}},
                             {{{"a", "c"}, {{"x", 2}, {"y", -1}}}, {{"a"}, {{"u", 2}, {"v", 2}}}}));
  for (const auto& names : std::vector<std::vector<std::string>>{{"x"},
                                                                 {"y"},
                                                                 {"x", "y"},
                                                                 {"b", "y"},
                                                                 {"x", "b", "y"},
                                                                 {"u"},
                                                                 {"v", "c"},
                                                                 {"u", "b", "c"}})
    expect_partition(m, m.set_of(names));
  EXPECT_EQ(m.size("y"), 4);
  EXPECT_EQ(m.members(0, m.set_of("y")), (std::vector<int>{0, 1, 6, 7}));
  EXPECT_NE(refusal([&] { m.set_of({"x", "u"}); }), "");
  EXPECT_NE(refusal([&] { m.set_of({"x", "c"}); }), "");
  EXPECT_NE(refusal([] { MeshShape(4, MeshAxes({{"a", 4}}, {{{"b"}, {{"x", 4}}}})); }), "");
  EXPECT_NE(refusal([] {
              MeshShape(4, MeshAxes({{"a", 4}}, {{{"a"}, {{"x", 4}}}, {{"x"}, {{"y", 4}}}}));
            }),
            "");
}

}  // namespace coordinates_test
