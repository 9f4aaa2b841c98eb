// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/group_memory.h"

#include <gtest/gtest.h>

namespace group_memory_test {

using namespace trireme;

namespace {

int64_t bytes(const ParallelSizes& sizes) {
  const int world = sizes.dp_replicate * sizes.dp_shard * sizes.tp * sizes.pp;
  return local_group_bytes(MeshShape(world, parallel_axes(sizes)));
}

// Of one group that carries tensors, in a world of its own; and its window for small blocks.
int64_t alone(int ranks) { return bytes({.dp_shard = ranks}); }
constexpr int64_t kWindow = 4 << 20;

}  // namespace

TEST(planner_group_memory, a_rank_alone_keeps_none_and_one_axis_is_the_world) {
  EXPECT_EQ(bytes({.dp_shard = 1}), 0);
  for (int n : {2, 3, 4, 8}) {
    EXPECT_GT(alone(n), kWindow);
    EXPECT_EQ(bytes({.dp_replicate = n, .dp_shard = 1}), alone(n));
    EXPECT_EQ(bytes({.dp_shard = 1, .tp = n}), alone(n));
    EXPECT_EQ(bytes({.dp_shard = 1, .pp = n}), alone(n));
  }
}

TEST(planner_group_memory, each_group_of_more_than_one_rank_has_control_memory) {
  const int64_t two = alone(2) - kWindow, four = alone(4) - kWindow, eight = alone(8) - kWindow;
  EXPECT_EQ(bytes({.dp_shard = 2, .tp = 2}), 2 * alone(2) + four);
  EXPECT_EQ(bytes({.dp_replicate = 2, .dp_shard = 2}), 2 * alone(2) + four);
  EXPECT_EQ(bytes({.dp_shard = 2, .pp = 2}), 2 * alone(2) + four);
  // dp_replicate × dp_shard, dp_shard × tp; all of them is the world.
  EXPECT_EQ(bytes({.dp_replicate = 2, .dp_shard = 2, .tp = 2}), 3 * alone(2) + 2 * four + eight);
  // pp × tp, dp_shard × tp, pp × dp_shard.
  EXPECT_EQ(bytes({.dp_shard = 2, .tp = 2, .pp = 2}), 3 * alone(2) + 3 * four + eight);
  EXPECT_GT(two, 0);
}

}  // namespace group_memory_test
