// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/async_saver.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/checkpoint/split_state.h"
#include "tests/support/ranks.h"
#include "trireme/base/failpoint.h"
#include "trireme/checkpoint/snapshot.h"
#include "trireme/checkpoint/steps/folders.h"

namespace async_saver_test {

using namespace trireme;
using namespace trireme::test;

namespace {

using Steps = std::vector<int64_t>;

struct Armed {
  explicit Armed(const std::string& text) { set_failpoints(text); }
  ~Armed() { set_failpoints(""); }
};

ShardedSaveOptions options_of(const Seat& seat, int keep = 2) { return {seat.layout(), keep}; }

}  // namespace

TEST(checkpoint_async_saver, a_step_holds_what_the_state_was_when_save_returned) {
  for (const auto& [world, shards, stage] :
       {std::tuple{1, 1, 1}, {2, 2, 1}, {2, 2, 3}, {4, 4, 3}, {4, 2, 3}}) {
    PrivateFolder run;
    const Seat seat{0, world, shards, stage};
    run_threads(world, [&](Group g) {
      const Seat mine{g.rank(), world, shards, stage};
      AsyncSaver saver(run.path(), g);
      SplitState state(mine, 0);
      for (int64_t step : {1, 2, 3}) {
        SplitState now(mine, static_cast<double>(step));
        for (size_t i = 0; i < state.tensors.size(); ++i)
          state.tensors[i].second.copy_(now.tensors[i].second);
        state.step = step, state.steps = now.steps;
        saver.save(step, std::ref(state), options_of(mine));
        for (auto& [slice, t] : state.tensors) t.fill_(-1);  // training goes on
      }
      EXPECT_EQ(saver.wait(), run / "step-00000003");
      EXPECT_EQ(saver.wait(), "") << "nothing is under way";
    });
    EXPECT_EQ(list_steps(run.path()), (Steps{2, 3}));
    for (const char* step : {"step-00000002", "step-00000003"}) {
      EXPECT_TRUE(all_load(run / step, seat)) << step;
      verify_checkpoint(run / step);
      for (const std::string& name : names_in(run / step))
        EXPECT_EQ(name.find("written"), std::string::npos) << name;
    }
  }
}

TEST(checkpoint_async_saver, its_files_are_those_of_a_save_that_waits) {
  PrivateFolder a, b;
  const Seat seat{0, 3, 3, 3};
  save_split(a.path(), 7, seat);
  run_threads(3, [&](Group g) {
    AsyncSaver saver(b.path(), g);
    SplitState state(seat_of(g, 3), 7);
    saver.save(7, std::ref(state), options_of(seat_of(g, 3)));
    saver.wait();
  });
  const std::vector<std::string> names = names_in(a / "step-00000007");
  EXPECT_EQ(names_in(b / "step-00000007"), names);
  for (const std::string& name : names)
    EXPECT_EQ(slurp(b / ("step-00000007/" + name)), slurp(a / ("step-00000007/" + name))) << name;
}

TEST(checkpoint_async_saver, a_failed_write_of_one_rank_is_every_rank_s_error_at_the_next_call) {
  for (int failing : {0, 1, 2}) {
    PrivateFolder run;
    const Seat seat{0, 3, 3, 3};
    save_split(run.path(), 100, seat);
    std::vector<std::string> texts(3);
    run_threads(3, [&](Group g) {
      AsyncSaver saver(run.path(), g);
      SplitState state(seat_of(g, 3), 200);
      if (g.rank() == 0)
        set_failpoints(fmt::format("checkpoint.write#{}=error({})", failing, ENOSPC));
      g.barrier();
      saver.save(200, std::ref(state), options_of(state.seat));
      texts[static_cast<size_t>(g.rank())] = trireme::testing::outcome_of([&] { saver.wait(); });
      EXPECT_EQ(list_steps(run.path()), (Steps{100}));
      EXPECT_EQ(hidden_files(run.path()), 0u);
      g.barrier();
      if (g.rank() == 0) set_failpoints("");
      g.barrier();
      SplitState later(seat_of(g, 3), 300);  // the same saver, when there is space again
      saver.save(300, std::ref(later), options_of(later.seat));
      saver.wait();
    });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts.front());
      EXPECT_TRUE(contains(text, "ResourceError: checkpoint of step 200 was not saved: ") &&
                  contains(text, fmt::format("rank {}", failing)) &&
                  contains(text, "cannot write " + run.path()))
          << text;
    }
    EXPECT_TRUE(all_load(run / "step-00000300", seat));
    EXPECT_TRUE(all_load(run / "step-00000100", seat));
  }
}

TEST(checkpoint_async_saver,
     ranks_that_do_not_fit_together_are_refused_before_anything_is_written) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    AsyncSaver saver(run / "r", g);
    const std::string text = trireme::testing::outcome_of([&] {
      saver.save(1, [&](StateVisitor& v) {
        v.tensor(Slice::range("model.w", {10}, 0, 6), at::ones({6}));
      });
    });
    EXPECT_TRUE(contains(text, "UsageError") && contains(text, "elements 6 to 9 are in none"))
        << text;
    EXPECT_FALSE(saver.busy());
    EXPECT_FALSE(std::filesystem::exists(run / "r"));
  });
}

TEST(checkpoint_async_saver, its_end_publishes_what_is_under_way) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  run_threads(2, [&](Group g) {
    SplitState state(seat_of(g, 2), 5);
    AsyncSaver saver(run.path(), g);
    saver.save(5, std::ref(state), options_of(state.seat));
  });
  EXPECT_TRUE(all_load(run.path(), seat));
}

TEST(checkpoint_async_saver, it_keeps_two_buffers_of_what_the_rank_writes) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    at::Tensor w = at::ones({1 << 20});
    AsyncSaver saver(run.path(), g);
    const StateWalk walk = [&](StateVisitor& v) { v.tensor("model.w", w); };
    EXPECT_EQ(saver.memory_bytes(), 0);
    saver.save(1, walk);
    // Halves of 4 MiB, which lie in memory as in their file's pages.
    const int64_t both = saver.memory_bytes();
    EXPECT_GE(both, 4 << 20);
    EXPECT_LE(both, (4 << 20) + 4 * 4096);
    for (int64_t step : {2, 3}) {
      saver.save(step, walk);
      EXPECT_EQ(saver.memory_bytes(), both);
    }
    saver.wait();
  });
}

TEST(checkpoint_async_saver, memory_that_is_not_there_is_an_error_that_names_its_size) {
  SnapshotMemory memory;
  const std::string text = trireme::testing::outcome_of([&] { memory.reserve(size_t{1} << 60); });
  EXPECT_TRUE(contains(text, "ResourceError") && contains(text, "1152921504606846976 bytes"))
      << text;
  EXPECT_NE(memory.reserve(100), nullptr);
}

}  // namespace async_saver_test
