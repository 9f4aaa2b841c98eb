// SPDX-License-Identifier: Apache-2.0
// What actors promise: one message at a time, in each sender's order, others meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"
#include "trireme/rpc/actor/actor.h"

namespace trireme::rpc_actor_actors_test {
namespace {

using namespace rpc_test;
using rpc::ActorGroup;
using rpc::ActorPlace;
using rpc::Future;
using rpc::Promise;

/// What the handlers of a test have in common; they are in this process.
struct Shared {
  Gate gate;
  std::mutex mutex;
  std::vector<Promise<int>> promises;
  std::atomic<int> alive{0};
};
Shared* shared = nullptr;

struct Recorder {
  Recorder(const ActorPlace& place, int first, const std::string& word)
      : me(place), sum(first), text(word) {
    ++shared->alive;
  }
  ~Recorder() { --shared->alive; }

  int add(int x) {
    EXPECT_EQ(inside.exchange(true), false) << "two messages at once";
    last = x;
    sum += x;
    inside = false;
    return sum;
  }
  void note(int caller, int x) {
    EXPECT_EQ(inside.exchange(true), false) << "two messages at once";
    if (seen.size() <= static_cast<size_t>(caller)) seen.resize(static_cast<size_t>(caller) + 1);
    in_order = in_order && seen[static_cast<size_t>(caller)] == x;
    ++seen[static_cast<size_t>(caller)];
    ++count;
    inside = false;
  }
  void large(int caller, int x, const std::string&) { note(caller, x); }
  bool orderly(int expected) { return in_order && count == expected; }
  std::string who() {
    return text + " " + std::to_string(me.rank) + "/" + std::to_string(me.size) + " in " +
           me.group + " on " + me.worker().name();
  }
  int hold(int x) {
    shared->gate.wait();
    return x;
  }
  Future<int> later() {
    std::lock_guard lock(shared->mutex);
    parked = true;
    shared->promises.emplace_back();
    return shared->promises.back().future().then([this](int x) {
      parked = false;
      return x;
    });
  }
  bool is_parked() { return parked; }
  int odd(int x) {
    if (me.rank % 2) throw std::out_of_range("rank " + std::to_string(me.rank) + " is odd");
    return x * me.rank;
  }
  int through(const rpc::ActorId<Recorder>& other, int x);

  ActorPlace me;
  std::atomic<bool> inside{false}, parked{false};
  int sum, last = 0, count = 0;
  std::string text;
  bool in_order = true;
  std::vector<int> seen;
};

TRIREME_ACTOR(Recorder, const ActorPlace&, int, const std::string&);
TRIREME_REMOTE(add, &Recorder::add);
TRIREME_REMOTE(note, &Recorder::note);
TRIREME_REMOTE(large, &Recorder::large);
TRIREME_REMOTE(orderly, &Recorder::orderly);
TRIREME_REMOTE(who, &Recorder::who);
TRIREME_REMOTE(hold, &Recorder::hold);
TRIREME_REMOTE(later, &Recorder::later);
TRIREME_REMOTE(is_parked, &Recorder::is_parked);
TRIREME_REMOTE(odd, &Recorder::odd);
TRIREME_REMOTE(through, &Recorder::through);

int Recorder::through(const rpc::ActorId<Recorder>& other, int x) {
  return rpc::Actor<Recorder>(me.worker(), other).call<struct add>(x).get();
}

rpc::Offer all() {
  return rpc::offer_actor<Recorder, add, note, large, orderly, who, hold, later, is_parked, odd,
                          through>();
}

class rpc_actor_actors : public ::testing::Test {
 protected:
  rpc_actor_actors() { shared = &state; }
  ~rpc_actor_actors() override { state.gate.open(); }

  Shared state;
  Job job{200us, 7};
  rpc::Worker one = job.start("one", {all()}), two = job.start("two", {all()});
  rpc::Worker me = job.start("me");
};

}  // namespace

TEST_F(rpc_actor_actors, are_constructed_where_they_were_asked_to_be_and_know_their_place) {
  const auto group = me.spawn<Recorder>({.workers = {"one", "two"}}, 5, "I am");
  EXPECT_EQ(group.size(), 2);
  EXPECT_EQ(group.name(), "Recorder");
  EXPECT_EQ(group.call<who>(0).get(), "I am 0/2 in Recorder on one");
  EXPECT_EQ(group.call<who>(1).get(), "I am 1/2 in Recorder on two");
  EXPECT_EQ(group.call<add>(1, 3).get(), 8);
  EXPECT_EQ(group.call<add>(0, 4).get(), 9) << "each has its own state";
  const auto more = me.spawn<Recorder>(
      {.workers = {"two", "one"}, .per_worker = 2, .name = "pairs"}, 0, std::string("more"));
  EXPECT_EQ(more.size(), 4);
  EXPECT_EQ(more.call<who>(1).get(), "more 1/4 in pairs on two");
  EXPECT_EQ(more.call<who>(2).get(), "more 2/4 in pairs on one");
  EXPECT_EQ(more.worker(3), "one");
}

TEST_F(rpc_actor_actors, gather_has_the_answers_in_order_and_says_which_one_failed) {
  const auto group = me.spawn<Recorder>({.workers = {"one", "two"}, .per_worker = 2}, 0, "x");
  auto replies = group.gather<odd>(10);
  ASSERT_EQ(replies.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    auto& reply = replies[static_cast<size_t>(rank)];
    EXPECT_EQ(reply.rank, rank);
    EXPECT_EQ(reply.ok(), rank % 2 == 0);
    if (reply.ok())
      EXPECT_EQ(reply.get(), 10 * rank);
    else
      EXPECT_NE(text_of<rpc::RemoteError>([&] {
                  reply.get();
                }).find("std::out_of_range: rank " + std::to_string(rank) + " is odd"),
                std::string::npos);
  }
  EXPECT_TRUE(group.gather<add>(1)[3].ok()) << "by default an actor that threw is kept";
}

TEST_F(rpc_actor_actors, a_broadcast_comes_to_all_before_what_is_sent_after_it) {
  const auto group = me.spawn<Recorder>({.workers = {"one", "two"}}, 0, "x");
  for (int i = 1; i <= 20; ++i) group.broadcast<add>(i);
  for (auto& reply : group.gather<add>(0)) EXPECT_EQ(reply.get(), 210);
  group.tell<add>(0, 5);
  EXPECT_EQ(group.call<add>(0, 0).get(), 215);
  EXPECT_EQ(group.call<add>(1, 0).get(), 210);
}

TEST_F(rpc_actor_actors, take_ten_thousand_messages_of_four_callers_in_the_order_of_each) {
  const auto group = me.spawn<Recorder>({.workers = {"one"}}, 0, "x");
  const auto id = group.id(0);
  const rpc::Worker others[3] = {job.start("a"), job.start("b"), two};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      if (caller == 3) {
        for (int i = 0; i < 2500; ++i) group.tell<note>(0, caller, i);
        return;
      }
      const rpc::Actor<Recorder> actor(others[caller], id);
      std::vector<Future<void>> sent;
      for (int i = 0; i < 2500; ++i) sent.push_back(actor.call<note>(caller, i));
      for (auto& future : sent) future.get();
    });
  for (auto& caller : callers) caller.join();
  EXPECT_TRUE(comes_about([&] { return group.call<orderly>(0, 10000).get(); }));
}

TEST_F(rpc_actor_actors, long_messages_are_not_overtaken_by_short_ones) {
  Job slow{3ms, 11};
  auto host = slow.start("host", {all()});
  auto sender = slow.start("sender");
  const auto group = sender.spawn<Recorder>({.workers = {"host"}}, 0, "x");
  std::vector<Future<void>> sent;
  for (int i = 0; i < 60; ++i)
    sent.push_back(i % 3 ? group.call<note>(0, 0, i)
                         : group.call<large>(0, 0, i, std::string(600 << 10, 'x')));
  for (auto& future : sent) future.get();
  EXPECT_TRUE(group.call<orderly>(0, 60).get());
}

TEST_F(rpc_actor_actors, threads_of_one_worker_that_take_turns_are_taken_in_that_order) {
  const auto group = me.spawn<Recorder>({.workers = {"one"}}, 0, "x");
  std::mutex mutex;
  int next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (;;) {
        std::lock_guard lock(mutex);
        if (next == 400) return;
        group.tell<note>(0, 0, next++);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(group.call<orderly>(0, 400).get());
}

TEST_F(rpc_actor_actors, one_that_computes_leaves_the_others_of_its_worker_alone) {
  const auto group = me.spawn<Recorder>({.workers = {"one"}, .per_worker = 2}, 0, "x");
  auto held = group.call<hold>(0, 7);
  auto behind = group.call<add>(0, 1);
  ASSERT_TRUE(state.gate.has_waiting(1));
  for (int i = 1; i <= 50; ++i) EXPECT_EQ(group.call<add>(1, 1).get(), i);
  EXPECT_FALSE(behind.ready());
  state.gate.open();
  EXPECT_EQ(held.get(), 7);
  EXPECT_EQ(behind.get(), 1);
}

TEST_F(rpc_actor_actors, a_handler_that_returns_a_future_keeps_the_turn_and_no_thread) {
  // Twenty actors of a worker with six threads.
  const auto group = me.spawn<Recorder>({.workers = {"one"}, .per_worker = 20}, 0, "x");
  std::vector<Future<int>> parked;
  std::vector<Future<bool>> behind;
  for (int rank = 0; rank < 20; ++rank) {
    parked.push_back(group.call<later>(rank));
    behind.push_back(group.call<is_parked>(rank));
  }
  EXPECT_TRUE(comes_about([&] {
    std::lock_guard lock(state.mutex);
    return state.promises.size() == 20;
  }));
  const auto other = me.spawn<Recorder>({.workers = {"one"}, .name = "other"}, 0, "x");
  EXPECT_EQ(other.call<add>(0, 2).get(), 2) << "threads are free";
  for (auto& future : behind) EXPECT_FALSE(future.ready());
  for (int i = 0; i < 20; ++i) state.promises[static_cast<size_t>(i)].set(i);
  for (auto& future : parked) future.get();
  for (auto& future : behind) EXPECT_FALSE(future.get()) << "it began when the turn was over";
  EXPECT_LE(one.threads(), 6);
}

TEST_F(rpc_actor_actors, may_be_called_by_whoever_knows_them) {
  const auto group = me.spawn<Recorder>({.workers = {"one", "two"}}, 1, "x");
  EXPECT_EQ(group.call<through>(0, group.id(1), 4).get(), 5);
  EXPECT_EQ(group.call<through>(1, group.id(0), 6).get(), 7);
  EXPECT_EQ(rpc::Actor<Recorder>(two, group.id(0)).call<add>(1).get(), 8);
}

TEST_F(rpc_actor_actors, live_at_the_worker_that_spawns_them_too) {
  auto both = job.start("both", {all()});
  const auto group = both.spawn<Recorder>({.workers = {"both", "one"}}, 1, "x");
  EXPECT_EQ(group.call<who>(0).get(), "x 0/2 in Recorder on both");
  for (int i = 0; i < 100; ++i) group.tell<note>(0, 0, i);
  EXPECT_TRUE(group.call<orderly>(0, 100).get());
}

TEST_F(rpc_actor_actors, end_with_the_last_handle_of_their_group_and_with_their_spawner) {
  {
    const auto group = me.spawn<Recorder>({.workers = {"one", "two"}}, 1, "x");
    const auto copy = group;
    EXPECT_EQ(state.alive, 2);
  }
  EXPECT_TRUE(comes_about([&] { return state.alive == 0; }));
  auto spawner = job.start("spawner");
  const auto group = spawner.spawn<Recorder>({.workers = {"one", "two"}}, 1, "x");
  EXPECT_EQ(state.alive, 2);
  job.net->kill("spawner");
  EXPECT_TRUE(comes_about([&] { return state.alive == 0; }));
}

TEST_F(rpc_actor_actors, a_job_that_shuts_down_with_groups_in_scope_ends_at_once) {
  const auto group = me.spawn<Recorder>({.workers = {"one", "two"}}, 1, "x");
  EXPECT_EQ(group.call<add>(0, 1).get(), 2);
  std::thread first([&] { one.shutdown({.deadline = kPlenty}); });
  std::thread second([&] { two.shutdown({.deadline = kPlenty}); });
  const auto begin = Clock::now();
  me.shutdown({.deadline = kPlenty});
  first.join();
  second.join();
  EXPECT_LT(Clock::now() - begin, kPlenty / 2);
  EXPECT_TRUE(comes_about([&] { return state.alive == 0; }));
  EXPECT_THROW(group.call<add>(0, 1).get(), PeerLost);
}

}  // namespace trireme::rpc_actor_actors_test
