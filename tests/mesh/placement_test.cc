// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/placement.h"

#include <gtest/gtest.h>

namespace placement_test {

using namespace trireme;

namespace {

std::vector<int> hosts_of(int world, int each) {
  std::vector<int> hosts;
  for (int r = 0; r < world; ++r) hosts.push_back(r / each);
  return hosts;
}

}  // namespace

TEST(mesh_placement, tensor_parallel_stays_inside_hosts_when_it_divides_them) {
  for (int tp : {1, 2, 4, 8}) {
    const MeshShape m(32, parallel_axes({.tp = tp, .pp = 2}));
    EXPECT_EQ(placement_warning(m, hosts_of(32, 8)), "") << tp;
    EXPECT_EQ(placement_warning(m, std::vector<int>(32, 5)), "");
  }
}

TEST(mesh_placement, a_group_across_hosts_is_named_with_what_to_do) {
  const MeshShape m(12, parallel_axes({.tp = 3}));
  EXPECT_EQ(placement_warning(m, hosts_of(12, 4)),
            "2 of 4 tp groups span hosts; the first has ranks 3, 4, 5 on hosts 0, 1: each of its "
            "collectives crosses the network. Choose a tp that divides the ranks of a host");
  const MeshShape other(8, {{"tp", 2}, {"dp_shard", 4}});
  const std::string text = placement_warning(other, hosts_of(8, 4));
  EXPECT_NE(text.find("Make tp the last axis of the mesh (it is dp_shard)"), std::string::npos)
      << text;
}

TEST(mesh_placement, every_axis_is_counted) {
  const MeshShape m(8, {{"pp", 2}, {"dp_shard", 2}, {"tp", 2}});
  const auto placed = place_axes(m, hosts_of(8, 4));
  ASSERT_EQ(placed.size(), 3u);
  EXPECT_EQ(placed[0].across, 4);
  EXPECT_EQ(placed[0].first, (std::vector<int>{0, 4}));
  EXPECT_EQ(placed[1].across, 0);
  EXPECT_EQ(placed[2].across, 0);
  EXPECT_EQ(placed[2].groups, 4);
  EXPECT_EQ(placement_warning(m, hosts_of(8, 4), "dp"), "");
  EXPECT_NE(placement_warning(m, hosts_of(8, 2), "dp"), "");
  EXPECT_THROW(place_axes(m, {0, 0}), UsageError);
}

}  // namespace placement_test
