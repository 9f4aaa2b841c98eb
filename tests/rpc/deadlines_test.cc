// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/deadlines.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

namespace trireme::rpc_deadlines_test {
namespace {

using rpc::detail::Deadlines;
using rpc::detail::SmallTask;
using Time = Clock::time_point;

Time at(int64_t us) { return Time(std::chrono::microseconds(us)); }

}  // namespace

TEST(rpc_deadlines, in_any_order_each_task_is_done_once_when_it_is_due_unless_it_was_removed) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    Deadlines deadlines;
    std::map<int, std::pair<Deadlines::Place, Time>> waiting;
    std::set<int> done;
    int64_t now = 0;
    int number = 0;
    for (int step = 0; step < 400; ++step) {
      switch (random() % 4) {
        case 0:
        case 1: {  // of a few patiences, as calls have, or of any
          const int64_t patience =
              seed % 2 ? int64_t{1} << (random() % 5 * 4) : static_cast<int64_t>(random() % 1000);
          const Time due = at(now + patience);
          const int mine = ++number;
          waiting[mine] = {deadlines.add(due, [&done, mine] { done.insert(mine); }), due};
          break;
        }
        case 2:
          if (!waiting.empty()) {
            const auto taken =
                std::next(waiting.begin(), static_cast<long>(random() % waiting.size()));
            deadlines.remove(taken->second.first);
            deadlines.remove(taken->second.first);  // twice is once
            waiting.erase(taken);
          }
          break;
        default: {
          now += static_cast<int64_t>(random() % 200);
          const Time next = deadlines.look(at(now));
          std::set<int> due;
          Time soonest = Time::max();
          for (const auto& [n, placed] : waiting)
            if (placed.second <= at(now))
              due.insert(n);
            else
              soonest = std::min(soonest, placed.second);
          ASSERT_EQ(done, due) << "seed " << seed;
          ASSERT_EQ(next, soonest) << "seed " << seed;
          for (const int n : due) {
            deadlines.remove(waiting[n].first);  // too late
            waiting.erase(n);
          }
          done.clear();
        }
      }
      ASSERT_EQ(deadlines.size(), waiting.size()) << "seed " << seed;
      ASSERT_LE(deadlines.places(), 2 * waiting.size() + 1024) << "seed " << seed;
    }
  }
}

// A call that waits for an hour among a million that do not.
TEST(rpc_deadlines, memory_is_bounded_by_what_waits) {
  Deadlines deadlines;
  deadlines.add(at(0), [] {});
  for (int i = 1; i <= 100'000; ++i) {
    const auto call = deadlines.add(at(i), [] {});
    const auto tells = deadlines.add(at(1), [] {});
    deadlines.add(at(i), [] {});
    deadlines.remove(tells);
    deadlines.remove(call);
    if (i % 1000 == 0) deadlines.look(at(i - 1));
  }
  EXPECT_LE(deadlines.places(), 1000u);
}

TEST(rpc_deadlines, a_task_lets_go_of_what_it_holds_once) {
  const auto held = std::make_shared<int>(1);
  {
    SmallTask first([held] {});
    SmallTask second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(held.use_count(), 2);
    SmallTask third([] {});
    third = std::move(second);
    EXPECT_EQ(held.use_count(), 2);
    third();
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace trireme::rpc_deadlines_test
