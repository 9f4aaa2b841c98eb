// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/hang/hang_watch.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::launch::hang_watch_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLook = milliseconds(250);

/// Ranks on a clock that the test moves, looked at four times a second.
struct Simulation {
  explicit Simulation(Duration limit) : watch(limit) {}
  void mark(int rank, Activity at, int64_t step) {
    watch.marked(rank, at, step, static_cast<uint64_t>(now.count()));
  }
  /// Time passes. What it was when `rank` was first silent for too long, if it was.
  std::optional<Duration> pass(Duration time, int rank = 0) {
    std::optional<Duration> silent;
    for (const Duration end = now + time; now < end;) {
      now += kLook;
      watch.look(kLook);
      const auto of = watch.rank(rank);
      if (of && of->is_silent() && !silent) silent = now;
    }
    return silent;
  }
  HangWatch watch;
  Duration now = seconds(1000);
};

TEST(launch_hang_watch, nobody_is_watched_who_does_not_mark) {
  Simulation s(seconds(1));
  EXPECT_FALSE(s.pass(seconds(1000)));
  s.watch.alive(0);
  EXPECT_FALSE(s.watch.watches_any());
}

TEST(launch_hang_watch, a_step_may_take_the_limit_or_ten_of_its_kind) {
  for (const auto& [step, limit] :
       {std::pair{seconds(1), seconds(60)}, {seconds(20), seconds(200)}}) {
    Simulation s(seconds(60));
    for (int64_t n = 1; n <= 5; ++n) {
      s.mark(0, Activity::step, n);
      if (n < 5) {
        EXPECT_FALSE(s.pass(step));
      }
    }
    const Duration begin = s.now;
    const auto silent = s.pass(seconds(1000));
    ASSERT_TRUE(silent);
    EXPECT_GE(*silent - begin, limit);
    EXPECT_LE(*silent - begin, limit + 2 * kLook);
    EXPECT_EQ(s.watch.rank(0)->step, 5);
  }
}

TEST(launch_hang_watch, the_first_step_and_what_is_no_step_may_take_ten_limits) {
  for (const Activity at :
       {Activity::build, Activity::load, Activity::step, Activity::evaluate, Activity::save}) {
    Simulation s(seconds(60));
    s.mark(0, at, 1);
    EXPECT_FALSE(s.pass(seconds(599))) << name_of(at);
    EXPECT_TRUE(s.pass(seconds(2))) << name_of(at);
  }
}

TEST(launch_hang_watch, what_took_long_before_may_take_longer) {
  Simulation s(seconds(1));
  s.mark(0, Activity::save, 1);
  EXPECT_FALSE(s.pass(seconds(9)));
  s.mark(0, Activity::evaluate, 1);  // has had no such silence
  EXPECT_FALSE(s.pass(seconds(9)));
  s.mark(0, Activity::save, 2);
  EXPECT_FALSE(s.pass(seconds(85)));
  EXPECT_TRUE(s.pass(seconds(10)));
}

TEST(launch_hang_watch, work_that_goes_on_is_no_silence) {
  Simulation s(seconds(1));
  s.mark(0, Activity::evaluate, 1);
  for (int i = 0; i < 100; ++i) {
    s.watch.alive(0);
    EXPECT_FALSE(s.pass(seconds(9)));
  }
}

TEST(launch_hang_watch, slower_and_slower_is_not_hung) {
  Simulation s(seconds(1));
  Duration step = milliseconds(250);
  for (int64_t n = 1; n <= 60; ++n) {
    s.mark(0, Activity::step, n);
    EXPECT_FALSE(s.pass(step)) << n;
    step += step / 10;
  }
  EXPECT_GT(step, seconds(50));
}

TEST(launch_hang_watch, one_long_step_among_short_ones_does_not_raise_the_limit) {
  Simulation s(seconds(1));
  for (int64_t n = 1; n <= 10; ++n) {
    s.mark(0, Activity::step, n);
    s.pass(n == 5 ? milliseconds(750) : milliseconds(250));
  }
  s.mark(0, Activity::step, 11);
  EXPECT_TRUE(s.pass(seconds(3)));
}

TEST(launch_hang_watch, a_launcher_that_was_stopped_accuses_nobody) {
  Simulation s(seconds(60));
  s.mark(0, Activity::step, 1);
  s.pass(seconds(1));
  s.mark(0, Activity::step, 2);
  s.watch.look(std::chrono::hours(5));  // counts half a second
  EXPECT_FALSE(s.watch.rank(0)->is_silent());
  EXPECT_FALSE(s.pass(seconds(58)));
  EXPECT_TRUE(s.pass(seconds(2)));
  s.watch.look(-std::chrono::hours(5));  // nor does a clock that goes back give time
  EXPECT_TRUE(s.watch.rank(0)->is_silent());
}

TEST(launch_hang_watch, who_is_done_or_gone_is_not_watched) {
  Simulation s(seconds(1));
  s.mark(0, Activity::step, 1);
  s.mark(0, Activity::done, 0);
  EXPECT_FALSE(s.watch.watches_any());
  s.mark(0, Activity::step, 1);
  s.watch.gone(0);
  EXPECT_FALSE(s.watch.watches_any());
  s.mark(0, static_cast<Activity>(200), 1);  // of no build that is known
  EXPECT_FALSE(s.watch.watches_any());
}

// A worker can say what it likes of its own time.
TEST(launch_hang_watch, times_that_cannot_be_true_do_not_count) {
  HangWatch watch(seconds(1));
  for (uint64_t time : {uint64_t{5}, ~uint64_t{0}, uint64_t{0}, uint64_t{1} << 63, uint64_t{7}}) {
    watch.marked(0, Activity::step, -1, time);
    watch.look(kLook);
  }
  EXPECT_LE(watch.rank(0)->limit, seconds(30));
}

TEST(launch_hang_watch, whatever_comes_the_limit_is_kept_and_no_more) {
  std::mt19937 random(1);
  const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int history = 0; history < 500; ++history) {
    Simulation s(milliseconds(500 + any(3000)));
    // Ranks that mark within what they may take are never silent.
    for (int64_t n = 1; n <= 30; ++n) {
      s.mark(0, static_cast<Activity>(1 + any(5)), n);
      const Duration may = s.watch.rank(0)->limit;
      const auto looks = static_cast<int>(std::min<Duration>(may, seconds(20)) / kLook);
      for (int i = any(3); i > 0; --i) {
        EXPECT_FALSE(s.pass(kLook * any(looks)));
        s.watch.alive(0);
      }
      EXPECT_FALSE(s.pass(kLook * any(looks)));
      if (any(4) == 0) s.watch.look(std::chrono::hours(1)), s.watch.alive(0);
    }
    // One that stops is silent within its limit and two looks.
    s.mark(0, Activity::step, 31);
    const Duration begin = s.now, may = s.watch.rank(0)->limit;
    const auto silent = s.pass(may + seconds(2));
    ASSERT_TRUE(silent);
    EXPECT_GE(*silent - begin, may);
    EXPECT_LE(*silent - begin, may + 2 * kLook);
  }
}

// ── Who is to blame ────────────────────────────────────────────────────────────────────────────

RankInSight silent(int rank, const std::string& waits_in = "") {
  return {rank,
          100 + rank,
          {Activity::step, 3, seconds(2), seconds(2), milliseconds(10)},
          waits_in,
          false};
}
RankInSight busy(int rank) {
  RankInSight r = silent(rank);
  r.marks.silence = seconds(1);
  return r;
}

TEST(launch_hang_watch, the_rank_that_waits_for_nobody_is_the_one) {
  const auto verdict = judge_hang({silent(0, "barrier() at a.cc:1"), silent(1), busy(2)}, 3);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->blamed, std::vector<size_t>{1});
  EXPECT_EQ(verdict->sentence,
            "rank 1 (pid 101) hangs in step 3: no progress for 2 s (its limit: 2 s; its steps take "
            "0.01 s), and it waits in no call; rank 0 waits in barrier() at a.cc:1");
  EXPECT_EQ(verdict->cause, "rank 1 hangs in step 3");
}

TEST(launch_hang_watch, a_rank_that_is_stopped_is_the_one_even_within_a_call) {
  auto stopped = silent(1, "all_reduce(float32[4], sum)");
  stopped.stopped = true;
  const auto verdict = judge_hang({silent(0, "barrier()"), stopped}, 2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->blamed, std::vector<size_t>{1});
  EXPECT_NE(verdict->sentence.find("and it is stopped by a signal, in all_reduce(float32[4], sum)"),
            std::string::npos)
      << verdict->sentence;
}

TEST(launch_hang_watch, who_waits_for_a_rank_that_is_busy_does_not_hang) {
  EXPECT_FALSE(judge_hang({silent(0, "barrier()"), busy(1)}, 2));
  EXPECT_FALSE(judge_hang({busy(0), busy(1)}, 2));
  EXPECT_FALSE(judge_hang({}, 0));
}

TEST(launch_hang_watch, all_that_wait_wait_for_each_other_if_there_is_nobody_else) {
  const std::vector<RankInSight> both{silent(0, "barrier()"), silent(1, "recv(int64[1])")};
  EXPECT_FALSE(judge_hang(both, 4)) << "others, on another node or without marks, may be busy";
  const auto verdict = judge_hang(both, 2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->blamed, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(verdict->sentence,
            "all ranks wait for each other in step 3, for 2 s (the limit: 2 s; its steps take 0.01 "
            "s): rank 0 waits in barrier(); rank 1 waits in recv(int64[1])");
}

/// Not watched: it has made no mark, or none any more.
RankInSight unwatched(int rank, bool stopped) { return {rank, 100 + rank, {}, "", stopped}; }

TEST(launch_hang_watch, a_stopped_rank_that_is_not_watched_is_the_one_where_all_others_wait) {
  const char* meeting = "the meeting of the ranks on this host, for rank 1";
  const auto verdict = judge_hang({silent(0, meeting), unwatched(1, true), silent(2, meeting)}, 3);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->blamed, std::vector<size_t>{1});
  EXPECT_EQ(verdict->sentence,
            "rank 1 (pid 101) is stopped by a signal; rank 0 waits in the meeting of the ranks on "
            "this host, for rank 1; rank 2 waits in the meeting of the ranks on this host, for "
            "rank 1, for 2 s (the limit: 2 s; its steps take 0.01 s)");
  EXPECT_EQ(verdict->cause, "rank 1 is stopped by a signal");
}

TEST(launch_hang_watch, ranks_that_are_not_watched_are_left_alone_otherwise) {
  EXPECT_FALSE(judge_hang({silent(0, "barrier()"), unwatched(1, false)}, 2)) << "it may be busy";
  EXPECT_FALSE(judge_hang({silent(0, "barrier()"), busy(2), unwatched(1, true)}, 3));
  EXPECT_FALSE(judge_hang({unwatched(0, true), unwatched(1, true)}, 2)) << "nobody waits";
  const auto verdict = judge_hang({silent(0), unwatched(1, true)}, 2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->blamed, std::vector<size_t>{0});
}

TEST(launch_hang_watch, a_sentence_of_a_thousand_ranks_can_be_read) {
  std::vector<RankInSight> all;
  for (int r = 0; r < 1000; ++r) all.push_back(silent(r));
  const auto verdict = judge_hang(all, 1000);
  ASSERT_TRUE(verdict);
  EXPECT_LT(verdict->sentence.size(), 2000u);
  EXPECT_NE(verdict->sentence.find("; 992 more"), std::string::npos) << verdict->sentence;
}

}  // namespace
}  // namespace trireme::launch::hang_watch_test
