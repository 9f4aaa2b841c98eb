// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"

namespace split_test {

using namespace trireme;

namespace {

SpawnOptions this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.timeout = std::chrono::seconds(30);
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  return o;
}

void same(int64_t got, int64_t want, const char* what) {
  trireme::check<Error>(got == want, "{}: {} in place of {}", what, got, want);
}

int64_t sum_of_ranks(Group g, int64_t mine) {
  at::Tensor t = at::full({1}, mine, at::kLong);
  g.all_reduce(t).wait();
  return t.item<int64_t>();
}

// Rows and columns of a grid of 2 × 3 ranks, and what crosses both.
void grid(Group world) {
  const int me = world.rank();
  Group row = world.split(me / 3), column = world.split(me % 3, -me);
  same(row.size(), 3, "size of a row");
  same(row.rank(), me % 3, "rank in a row");
  same(column.size(), 2, "size of a column");
  same(column.rank(), 1 - me / 3, "rank in a column, by key");
  same(row.world_ranks()[1], me / 3 * 3 + 1, "world rank");
  same(column.world_ranks()[0], me % 3 + 3, "world rank, by key");
  for (int i = 0; i < 50; ++i) {
    same(sum_of_ranks(row, me), me / 3 ? 12 : 3, "sum of a row");
    same(sum_of_ranks(column, me), 2 * (me % 3) + 3, "sum of a column");
  }
  Group pair = row.split(row.rank() == 2 ? -1 : 0);
  same(static_cast<bool>(pair), row.rank() != 2, "a rank without colour has no group");
  if (pair) {
    same(pair.world_ranks()[1], me / 3 * 3 + 1, "world rank two groups deep");
    same(sum_of_ranks(pair, me), me / 3 ? 7 : 1, "sum of a pair");
  }
  Group reversed = world.new_group({5, 3, 0});
  same(static_cast<bool>(reversed), me == 5 || me == 3 || me == 0, "members of new_group");
  if (reversed) same(reversed.rank(), me == 5 ? 0 : me == 3 ? 1 : 2, "order of new_group");
  world.barrier();
}

}  // namespace

TEST(comm_split, rows_and_columns_of_threads) { run_threads(6, grid); }

TEST(comm_split, rows_and_columns_of_processes) { spawn(6, grid, this_test()); }

// Rank 1 waits in group b for something that rank 0 does only in its wait for group a.
TEST(comm_split, overlapping_groups_make_progress_together) {
  for (bool processes : {false, true}) {
    auto body = [](Group world) {
      Group a = world.new_group({0, 1}), b = world.new_group({0, 1});
      for (int i = 0; i < 20; ++i) {
        at::Tensor x = at::full({50000}, 1.0f), y = at::full({50000}, 2.0f);
        Work first = a.all_reduce(x), second = b.all_reduce(y);
        if (world.rank() == 0) {
          first.wait();
          second.wait();
        } else {
          second.wait();
          first.wait();
        }
        same(x[49999].item<int64_t>(), 2, "sum in a");
        same(y[49999].item<int64_t>(), 4, "sum in b");
      }
      world.barrier();
    };
    if (processes)
      spawn(2, body, this_test());
    else
      run_threads(2, body);
  }
}

TEST(comm_split, a_groups_memory_is_reduced_in_place_by_another) {
  spawn(
      2,
      [](Group world) {
        Group g = world.split(0);
        at::Tensor t = g.empty({300000}, at::kFloat);
        t.fill_(world.rank() + 1);
        g.all_reduce(t).wait();
        same(t.eq(3).all().item<bool>(), true, "sum in the new group's arena");
        world.all_reduce(t).wait();  // ordinary memory to the world
        same(t.eq(6).all().item<bool>(), true, "sum in the world");
      },
      this_test());
}

TEST(comm_split, ranks_that_name_other_members_are_told) {
  EXPECT_THROW(
      run_threads(3,
                  [](Group g) {
                    g.new_group(g.rank() == 2 ? std::vector<int>{0, 2} : std::vector<int>{0, 1});
                  }),
      Mismatch);
  EXPECT_THROW(run_threads(2, [](Group g) { g.new_group({0, 2}); }), UsageError);
  EXPECT_THROW(run_threads(2, [](Group g) { g.new_group({1, 1}); }), UsageError);
}

TEST(comm_split, a_failure_in_a_group_leaves_the_others_to_go_on) {
  run_threads(4, [](Group world) {
    Group g = world.split(world.rank() % 2);
    if (world.rank() % 2 == 1) {
      bool failed = false;
      try {
        at::Tensor t = at::ones({world.rank() == 1 ? 2 : 3});
        g.all_reduce(t).wait();
      } catch (const Mismatch&) {
        failed = true;
      }
      same(failed, true, "a mismatch in one group");
    } else {
      same(sum_of_ranks(g, world.rank()), 2, "the other group");
    }
    same(sum_of_ranks(world, 1), 4, "the world");
    // And the ranks that failed meet again in a new group.
    Group again = world.split(world.rank() % 2);
    same(sum_of_ranks(again, 1), 2, "a new group");
  });
}

TEST(comm_split, monitored_barrier_names_every_rank_that_did_not_come) {
  std::atomic<bool> over{false};
  std::atomic<int> told{0};
  run_threads(4, [&](Group g) {
    g.monitored_barrier(std::chrono::seconds(10));
    if (g.rank() == 1 || g.rank() == 3) {
      while (!over) std::this_thread::yield();
      return;
    }
    try {
      g.monitored_barrier(std::chrono::milliseconds(200), true);
    } catch (const Timeout& e) {
      trireme::check<Error>(
          std::string(e.what()).find("rank 1, 3 did not come") != std::string::npos, "{}",
          e.what());
      if (++told == 2) over = true;
    }
    const auto patience = Deadline::after(std::chrono::seconds(20));
    while (!over) {
      trireme::check<Error>(!patience.expired(), "only {} of 2 ranks were told", told.load());
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(comm_split, monitored_barrier_of_a_group_names_ranks_of_the_world) {
  std::atomic<bool> over{false};
  run_threads(4, [&](Group g) {
    Group some = g.new_group({1, 3});
    if (g.rank() == 1) {
      std::string what;
      try {
        some.monitored_barrier(std::chrono::milliseconds(200));
      } catch (const Timeout& e) {
        what = e.what();
      }
      over = true;
      trireme::check<Error>(what.find("rank 3 did not come") != std::string::npos, "{}", what);
    }
    const auto patience = Deadline::after(std::chrono::seconds(20));
    while (!over && !patience.expired()) std::this_thread::yield();
  });
  EXPECT_TRUE(over);
}

}  // namespace split_test
