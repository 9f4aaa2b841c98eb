// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>

#include "tests/comm/local/groups.h"
#include "tests/support/refusals.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/verdict.h"

namespace flight_test {

// What the ranks of the local engine leave behind when a group fails.
using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

Call reduce_of(float* p, size_t n, CallSite at = CallSite::here()) {
  return {
      .op = Collective::all_reduce, .dtype = DType::f32, .in = p, .out = p, .count = n, .site = at};
}

/// TRIREME_FLIGHT_DIR for this process and its children, as long as it lives.
class FlightFolder {
 public:
  FlightFolder() { ::setenv("TRIREME_FLIGHT_DIR", path().c_str(), 1); }
  ~FlightFolder() { ::unsetenv("TRIREME_FLIGHT_DIR"); }
  std::string path() const { return parent_ / "flight"; }
  std::vector<flight::History> read() const { return flight::read_dumps(path()); }

 private:
  PrivateFolder parent_;
};

}  // namespace

TEST(comm_local_flight, a_killed_rank_is_written_down_by_the_survivors) {
  FlightFolder folder;
  as_processes(3, [](Engine& e) {
    std::vector<float> v(1000);
    for (int i = 0; i < 57; ++i) e.run(reduce_of(v.data(), v.size()));
    if (e.rank() == 1) ::raise(SIGKILL);
    e.run(reduce_of(v.data(), 999));
  });
  const auto all = folder.read();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NE(all[1].writer, 1);
  EXPECT_EQ(all[1].calls.size(), 57u);
  const auto v = flight::judge(all);
  EXPECT_TRUE(v.absent.empty());
  EXPECT_TRUE(has(v.sentence,
                  "rank 1 never made call 58 of group world, in which ranks 0 and 2 called "
                  "all_reduce(float32[999], sum) at tests/comm/local/flight_test.cc:") &&
              has(v.sentence, "its last was call 57, all_reduce(float32[1000], sum) at "))
      << v.sentence;
}

TEST(comm_local_flight, a_stopped_rank_is_written_down_by_who_times_out) {
  FlightFolder folder;
  Processes ranks(
      2,
      [](Engine& e) {
        float v = 0;
        e.run(reduce_of(&v, 1));
        if (e.rank() == 1) ::raise(SIGSTOP);
        e.run(reduce_of(&v, 1));
      },
      std::chrono::milliseconds(400));
  int status = 0;
  ASSERT_EQ(::waitpid(ranks.pid(1), &status, WUNTRACED), ranks.pid(1));
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(0)), &info, WEXITED | WNOWAIT), 0);
  const auto v = flight::judge(folder.read());
  EXPECT_TRUE(has(v.sentence, "rank 1 never made call 2 of group world, in which rank 0 called "))
      << v.sentence;
  ::kill(ranks.pid(1), SIGKILL);
}

TEST(comm_local_flight, a_mismatch_of_threads_is_the_verdict) {
  FlightFolder folder;
  as_threads(3, [](Engine& e) {
    float v[2] = {};
    for (int i = 0; i < 9; ++i) e.run(reduce_of(v, 1));
    e.run(reduce_of(v, e.rank() == 2 ? 2 : 1));
  });
  const auto all = folder.read();
  ASSERT_EQ(all.size(), 3u);
  const auto v = flight::judge(all);
  EXPECT_EQ(v.kind, flight::Verdict::different_call);
  EXPECT_TRUE(has(v.sentence, "rank 2 called all_reduce(float32[2], sum) at ") &&
              has(v.sentence, " as its call 10 of group world where ranks 0 and 1 called "))
      << v.sentence;
}

TEST(comm_local_flight, groups_in_another_order_are_the_verdict) {
  FlightFolder folder;
  worlds_as_threads(2, [](World& w) {
    Engine &a = w.group("world/1", {0, 1}), &b = w.group("world/2", {1, 0});
    float v = 0;
    w.all->run(reduce_of(&v, 1));
    (w.rank() ? a : b).run(reduce_of(&v, 1));
  });
  const auto all = folder.read();
  EXPECT_EQ(all.size(), 6u);  // two ranks, three groups
  const auto v = flight::judge(all);
  EXPECT_EQ(v.kind, flight::Verdict::cycle);
  EXPECT_TRUE(has(v.sentence, "of group world/2 for rank 1") &&
              has(v.sentence, "of group world/1 for rank 0"))
      << v.sentence;
}

TEST(comm_local_flight, messages_are_recorded_and_a_lost_one_is_the_verdict) {
  FlightFolder folder;
  as_threads(
      2,
      [](Engine& e) {
        std::vector<int> v(4);
        Call c{.op = e.rank() ? Collective::recv : Collective::send,
               .dtype = DType::i32,
               .root = 1 - e.rank(),
               .in = v.data(),
               .out = v.data(),
               .count = 4,
               .site = CallSite::here()};
        for (int i = 0; i < 3; ++i) e.run(c);
        if (e.rank() == 1) e.run(c);
        while (e.host().control(1)->state.load() != RankState::failed) ::usleep(1000);
      },
      std::chrono::milliseconds(300));
  const auto all = folder.read();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].pairs.size(), 3u);
  EXPECT_EQ(all[1].pairs.size(), 4u);
  EXPECT_EQ(all[0].pairs[2].state, flight::CallState::done);
  const auto v = flight::judge(all);
  EXPECT_EQ(v.kind, flight::Verdict::missing_message);
  EXPECT_TRUE(has(v.sentence,
                  "rank 0 never sent message 4 with tag 0 of group world, for which "
                  "rank 1 called recv(int32[4], from rank 0) at "))
      << v.sentence;
}

TEST(comm_local_flight, a_rank_that_throws_for_a_reason_of_its_own_leaves_nothing) {
  FlightFolder folder;
  as_threads(3, [](Engine& e) {
    float v = 0;
    e.run(reduce_of(&v, 1));
    if (e.rank() == 1) throw NumericError("loss is nan");
    e.run(reduce_of(&v, 1));
  });
  EXPECT_NE(::access(folder.path().c_str(), F_OK), 0);
}

TEST(comm_local_flight, a_group_that_ends_well_leaves_nothing) {
  FlightFolder folder;
  as_threads(2, [](Engine& e) {
    float v = 0;
    e.run(reduce_of(&v, 1));
  });
  EXPECT_NE(::access(folder.path().c_str(), F_OK), 0);
}

TEST(comm_local_flight, a_rank_that_left_early_is_written_down_by_who_waits) {
  FlightFolder folder;
  as_processes(2, [](Engine& e) {
    float v = 0;
    for (int i = 0; i < (e.rank() ? 3 : 4); ++i) e.run(reduce_of(&v, 1));
  });
  const auto v = flight::judge(folder.read());
  EXPECT_TRUE(has(v.sentence, "rank 1 never made call 4 of group world, in which rank 0 called "))
      << v.sentence;
  EXPECT_TRUE(v.absent.empty());
}

}  // namespace flight_test
