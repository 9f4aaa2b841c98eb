// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_plan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace trireme::offload_plan_test {
namespace {

// All lists of up to `most` sizes out of 0..largest.
template <class Body>
void for_all_sizes(size_t most, int64_t largest, const Body& body) {
  std::vector<int64_t> sizes;
  const auto deal = [&](auto& self) -> void {
    body(sizes);
    if (sizes.size() == most) return;
    for (int64_t s = 0; s <= largest; ++s) {
      sizes.push_back(s);
      self(self);
      sizes.pop_back();
    }
  };
  deal(deal);
}

TEST(shard_offload_plan, sub_groups_hold_every_parameter_once_in_order_and_are_as_full_as_can_be) {
  int plans = 0;
  for (int64_t limit = 1; limit <= 7; ++limit)
    for_all_sizes(5, 5, [&](const std::vector<int64_t>& sizes) {
      const auto groups = plan_sub_groups(sizes, limit);
      ++plans;
      size_t next = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        ASSERT_EQ(groups[g].first, next);
        ASSERT_GE(groups[g].count, 1u);
        next += groups[g].count;
        ASSERT_LE(next, sizes.size());
        const auto begin = sizes.begin() + static_cast<ptrdiff_t>(groups[g].first);
        const int64_t bytes =
            std::accumulate(begin, begin + static_cast<ptrdiff_t>(groups[g].count), int64_t{0});
        ASSERT_EQ(groups[g].bytes, bytes);
        // More than the limit: one parameter does, and what comes with it has no state.
        if (bytes > limit) {
          ASSERT_EQ(*std::max_element(begin, begin + static_cast<ptrdiff_t>(groups[g].count)),
                    bytes);
        }
        if (next < sizes.size()) {
          ASSERT_GT(bytes + sizes[next], limit) << "there was room";
        }
      }
      ASSERT_EQ(next, sizes.size());
    });
  EXPECT_GT(plans, 60000);
}

TEST(shard_offload_plan, a_size_near_the_end_of_the_integers_does_not_overflow) {
  const auto groups = plan_sub_groups({INT64_MAX - 1, 5, INT64_MAX - 4}, INT64_MAX);
  EXPECT_EQ(groups.size(), 3u);
}

TEST(shard_offload_plan, offsets_are_aligned_and_do_not_overlap) {
  for (int64_t alignment : {1, 2, 4, 8})
    for_all_sizes(4, 9, [&](const std::vector<int64_t>& sizes) {
      const auto offsets = plan_offsets(sizes, alignment);
      ASSERT_EQ(offsets.size(), sizes.size() + 1);
      ASSERT_EQ(offsets[0], 0);
      for (size_t i = 0; i < sizes.size(); ++i) {
        ASSERT_EQ(offsets[i + 1] % alignment, 0);
        ASSERT_GE(offsets[i + 1], offsets[i] + sizes[i]);
        ASSERT_LT(offsets[i + 1], offsets[i] + sizes[i] + alignment);
      }
    });
}

// What a pass does, played through: one buffer holds one sub-group at a time, and nothing is used
// before it was read or lost before it was written.
struct Played {
  int most_reading = 0;  // reads under way while a sub-group is used
  int most_writing = 0;  // writes
  int both = 0;          // uses with a read and a write under way
  int most_held = 0;     // buffers taken at once
};

Played play(const std::vector<OffloadTurn>& turns, int groups, int buffers) {
  enum class Stage { on_disk, reading, ready, used, writing, done };
  std::vector<Stage> stage(static_cast<size_t>(groups), Stage::on_disk);
  std::vector<int> owner(static_cast<size_t>(buffers), -1);
  Played seen;
  int last_used = -1;
  for (const auto& t : turns) {
    auto& s = stage[static_cast<size_t>(t.group)];
    auto& o = owner[static_cast<size_t>(t.buffer)];
    auto moves = [&](Stage from, Stage to) {
      EXPECT_EQ(static_cast<int>(s), static_cast<int>(from)) << "sub-group " << t.group;
      s = to;
    };
    if (t.action == OffloadTurn::read) {
      EXPECT_EQ(o, -1) << "buffer " << t.buffer << " is in use";
      o = t.group;
      moves(Stage::on_disk, Stage::reading);
    } else {
      EXPECT_EQ(o, t.group);
    }
    if (t.action == OffloadTurn::wait_read) moves(Stage::reading, Stage::ready);
    if (t.action == OffloadTurn::use) {
      moves(Stage::ready, Stage::used);
      EXPECT_EQ(t.group, last_used + 1);
      last_used = t.group;
      const auto reading = static_cast<int>(std::count(stage.begin(), stage.end(), Stage::reading));
      const auto writing = static_cast<int>(std::count(stage.begin(), stage.end(), Stage::writing));
      seen.most_reading = std::max(seen.most_reading, reading);
      seen.most_writing = std::max(seen.most_writing, writing);
      seen.both += reading && writing;
    }
    if (t.action == OffloadTurn::write) moves(Stage::used, Stage::writing);
    if (t.action == OffloadTurn::wait_write) {
      moves(Stage::writing, Stage::done);
      o = -1;
    }
    seen.most_held = std::max(
        seen.most_held, buffers - static_cast<int>(std::count(owner.begin(), owner.end(), -1)));
  }
  EXPECT_EQ(std::count(stage.begin(), stage.end(), Stage::done), groups);
  return seen;
}

TEST(shard_offload_plan, turns_read_use_and_write_every_sub_group_once_and_share_no_buffer) {
  for (int groups = 0; groups <= 12; ++groups)
    for (int buffers = 1; buffers <= 6; ++buffers)
      for (bool read : {false, true})
        for (bool write : {false, true}) {
          SCOPED_TRACE(::testing::Message() << groups << " sub-groups, " << buffers
                                            << " buffers, read " << read << ", write " << write);
          const Played seen = play(plan_turns(groups, buffers, read, write), groups, buffers);
          EXPECT_LE(seen.most_held, std::min(groups, buffers));
          if (!read) {
            EXPECT_EQ(seen.most_reading, 0);
          }
          if (!write) {
            EXPECT_EQ(seen.most_writing, 0);
          }
          if (read && buffers >= 2 && groups >= 2) {
            EXPECT_GE(seen.most_reading, 1);
          }
          if (write && !read && buffers >= 2 && groups >= 2) {
            EXPECT_GE(seen.most_writing, 1);
          }
          // With three buffers every sub-group but the ends has both neighbours moving.
          if (read && write && buffers >= 3 && groups >= 3) {
            EXPECT_GE(seen.both, groups - 2);
          }
          if (HasFailure()) return;
        }
}

}  // namespace
}  // namespace trireme::offload_plan_test
