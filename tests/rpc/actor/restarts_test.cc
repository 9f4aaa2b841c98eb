// SPDX-License-Identifier: Apache-2.0
// What becomes of actors that fail, and of those whose worker dies.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/rpc/lost_calls.h"
#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"
#include "trireme/rpc/actor/actor.h"

namespace trireme::rpc_actor_restarts_test {
namespace {

using namespace rpc_test;
using rpc::ActorPlace;
using rpc::Began;
using rpc::CallLost;
using rpc::Future;
using rpc::OnDeath;
using rpc::OnError;
using rpc::SpawnOptions;

Gate* gate = nullptr;
std::atomic<int>* alive = nullptr;
std::atomic<int>* runs = nullptr;
std::atomic<bool>* no_more = nullptr;

struct Fragile {
  Fragile(const ActorPlace& place, int first) : me(place), sum(first) {
    if (*no_more) throw std::runtime_error("no more of these");
    ++*alive;
  }
  ~Fragile() { --*alive; }
  int add(int x) {
    ++*runs;
    return sum += x;
  }
  void fall(const std::string& how) { throw std::runtime_error(how); }
  int hold_and_fall(const std::string& how) {
    gate->wait();
    throw std::runtime_error(how);
  }
  int hold(int x) {
    ++*runs;
    gate->wait();
    return x;
  }
  std::string where() {
    return me.worker().name() + " after " + std::to_string(me.restarts) + " restarts";
  }
  ActorPlace me;
  int sum;
};
TRIREME_ACTOR(Fragile, const ActorPlace&, int);
TRIREME_REMOTE(add, &Fragile::add);
TRIREME_REMOTE(fall, &Fragile::fall);
TRIREME_REMOTE(hold_and_fall, &Fragile::hold_and_fall);
TRIREME_REMOTE(hold, &Fragile::hold);
TRIREME_REMOTE(where, &Fragile::where);

/// An actor with actors of its own.
struct Parent {
  Parent(const ActorPlace& place, const std::string& worker)
      : me(place),
        children(place.worker().spawn<Fragile>(
            {.workers = {worker}, .supervision = {.on_error = OnError::escalate}}, 1)) {}
  void break_child() {
    try {
      children.call<fall>(0, "a child's fault").get();
    } catch (const rpc::RemoteError&) {
    }
  }
  int restarts() { return me.restarts; }
  ActorPlace me;
  rpc::ActorGroup<Fragile> children;
};
TRIREME_ACTOR(Parent, const ActorPlace&, const std::string&);
TRIREME_REMOTE(break_child, &Parent::break_child);
TRIREME_REMOTE(restarts, &Parent::restarts);

std::vector<rpc::Offer> all() {
  return {rpc::offer_actor<Fragile, add, fall, hold_and_fall, hold, where>(),
          rpc::offer_actor<Parent, break_child, restarts>()};
}

class rpc_actor_restarts : public ::testing::Test {
 protected:
  rpc_actor_restarts() {
    gate = &gate_;
    alive = &alive_;
    runs = &runs_;
    no_more = &no_more_;
  }
  ~rpc_actor_restarts() override { gate_.open(); }

  Began began_of(Future<int> future) { return rpc_test::began_of(std::move(future), &text); }
  /// Its process is dead, and the store has heard so.
  void kill(const std::string& name, int member) {
    job.net->kill(name);
    job.store->set("rpc/0/done/" + std::to_string(member), "gone");
  }
  std::function<void(int, const std::string&)> told() {
    return [this](int rank, const std::string& story) {
      std::lock_guard lock(mutex);
      stories.push_back(std::to_string(rank) + ": " + story);
    };
  }
  std::vector<std::string> heard() {
    std::lock_guard lock(mutex);
    return stories;
  }

  testing::CapturedLog log;
  Gate gate_;
  std::atomic<int> alive_{0}, runs_{0};
  std::atomic<bool> no_more_{false};
  std::mutex mutex;
  std::vector<std::string> stories;
  std::string text;
  Job job{100us, 5};
  rpc::Worker one = job.start("one", all());  // member 1
  rpc::Worker two = job.start("two", all());  // member 2
  rpc::Worker me = job.start("me");
};

}  // namespace

TEST_F(rpc_actor_restarts, one_that_throws_is_kept_unless_asked_otherwise) {
  const auto group = me.spawn<Fragile>({.workers = {"one"}}, 10);
  EXPECT_EQ(group.call<add>(0, 5).get(), 15);
  EXPECT_THROW(group.call<fall>(0, "oops").get(), rpc::RemoteError);
  EXPECT_EQ(group.call<add>(0, 5).get(), 20);
  EXPECT_EQ(group.call<where>(0).get(), "one after 0 restarts");
}

TEST_F(rpc_actor_restarts, one_that_is_restarted_begins_with_its_constructor_s_arguments) {
  const auto group =
      me.spawn<Fragile>({.workers = {"one"}, .supervision = {.on_error = OnError::restart}}, 10);
  EXPECT_EQ(group.call<add>(0, 5).get(), 15);
  const auto other = rpc::Actor<Fragile>(two, group.id(0));
  EXPECT_NE(text_of<rpc::RemoteError>([&] { group.call<fall>(0, "oops").get(); }).find("oops"),
            std::string::npos)
      << "its caller gets the error";
  EXPECT_EQ(group.call<add>(0, 1).get(), 11)
      << "what is sent after the error waits for the restart";
  EXPECT_EQ(group.call<where>(0).get(), "one after 1 restarts");
  EXPECT_EQ(other.call<add>(1).get(), 12) << "others' handles stay valid";
  EXPECT_EQ(alive_, 1);
}

TEST_F(rpc_actor_restarts, messages_that_waited_for_one_that_failed_did_not_begin) {
  const auto group =
      me.spawn<Fragile>({.workers = {"one"}, .supervision = {.on_error = OnError::restart}}, 10);
  auto first = group.call<hold_and_fall>(0, "oops");
  ASSERT_TRUE(gate_.has_waiting(1));
  std::vector<Future<int>> behind;
  for (int i = 0; i < 5; ++i) behind.push_back(group.call<add>(0, 1));
  EXPECT_EQ(rpc::Actor<Fragile>(me, group.id(0)).id().worker, "one");
  // The mailbox has all of them once a call to another actor there is answered.
  const auto other = me.spawn<Fragile>({.workers = {"one"}}, 0);
  gate_.open();
  EXPECT_THROW(first.get(), rpc::RemoteError);
  for (auto& future : behind) EXPECT_EQ(began_of(std::move(future)), Began::no);
  EXPECT_NE(text.find("failed before it took this message: 'Fragile.hold_and_fall' threw oops"),
            text.npos)
      << text;
  EXPECT_EQ(runs_, 0);
  EXPECT_EQ(group.call<add>(0, 1).get(), 11);
}

TEST_F(rpc_actor_restarts, too_many_failures_end_it_and_its_spawner_hears_the_story) {
  const auto group =
      me.spawn<Fragile>({.workers = {"one", "two"},
                         .supervision = {.on_error = OnError::restart, .most_restarts = 2},
                         .on_failure = told()},
                        10);
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW(group.call<fall>(1, "fall " + std::to_string(i)).get(), rpc::RemoteError);
  EXPECT_TRUE(comes_about([&] { return heard().size() == 1; }));
  const std::string story = heard().at(0);
  EXPECT_EQ(story.find("1: actor 'Fragile' 1 of 2 on worker 'two' has failed: it was restarted 2 "
                       "times"),
            0u)
      << story;
  for (const char* part : {"fall 0", "fall 1", "fall 2"})
    EXPECT_NE(story.find(part), story.npos) << story;
  EXPECT_EQ(began_of(group.call<add>(1, 1)), Began::no);
  EXPECT_NE(text.find("fall 2"), text.npos) << text;
  EXPECT_NE(group.failure(1).find("fall 2"), std::string::npos);
  EXPECT_EQ(group.call<add>(0, 1).get(), 11) << "the others go on";
  EXPECT_EQ(group.failure(0), "");
}

TEST_F(rpc_actor_restarts, a_constructor_that_fails_on_the_way_back_is_a_failure_too) {
  const auto group =
      me.spawn<Fragile>({.workers = {"one"},
                         .supervision = {.on_error = OnError::restart, .most_restarts = 3},
                         .on_failure = told()},
                        10);
  no_more_ = true;
  EXPECT_THROW(group.call<fall>(0, "oops").get(), rpc::RemoteError);
  EXPECT_TRUE(comes_about([&] { return heard().size() == 1; }));
  EXPECT_NE(heard().at(0).find("its constructor threw no more of these"), std::string::npos)
      << heard().at(0);
  EXPECT_NE(heard().at(0).find("restarted 3 times"), std::string::npos) << heard().at(0);
}

TEST_F(rpc_actor_restarts, one_that_escalates_ends_at_its_first_failure) {
  const auto group = me.spawn<Fragile>(
      {.workers = {"one"}, .supervision = {.on_error = OnError::escalate}, .on_failure = told()},
      10);
  EXPECT_THROW(group.call<fall>(0, "oops").get(), rpc::RemoteError);
  EXPECT_EQ(began_of(group.call<add>(0, 1)), Began::no);
  EXPECT_TRUE(comes_about([&] { return heard().size() == 1; }));
  EXPECT_NE(heard().at(0).find("it was not restarted"), std::string::npos) << heard().at(0);
  EXPECT_TRUE(comes_about([&] { return alive_ == 0; }));
}

TEST_F(rpc_actor_restarts, what_an_actor_spawned_fails_it_too) {
  const auto group =
      me.spawn<Parent>({.workers = {"one"}, .supervision = {.on_error = OnError::restart}}, "two");
  EXPECT_EQ(group.call<restarts>(0).get(), 0);
  group.call<break_child>(0).get();
  EXPECT_TRUE(comes_about([&] {
    try {
      return group.call<restarts>(0).get() == 1;
    } catch (const CallLost&) {  // it waited while the news came
      return false;
    }
  }));
  EXPECT_TRUE(comes_about([&] { return alive_ == 1; })) << "the first child has ended, too";
}

TEST_F(rpc_actor_restarts, a_worker_that_dies_loses_its_actors_to_another_one) {
  const auto group = me.spawn<Fragile>({.workers = {"one", "two"}}, 10);
  auto held = group.call<hold>(0, 1);
  ASSERT_TRUE(gate_.has_waiting(1));
  auto behind = group.call<add>(0, 1);
  // That it began is told after a millisecond, before the answer to what comes later.
  const auto begin = Clock::now();
  EXPECT_TRUE(comes_about([&] { return Clock::now() - begin > 20ms; }));
  const auto fence = me.spawn<Fragile>({.workers = {"one"}}, 0);
  EXPECT_EQ(fence.call<add>(0, 0).get(), 0);
  runs_ = 0;
  kill("one", 1);
  EXPECT_EQ(began_of(std::move(held)), Began::yes);
  EXPECT_NE(began_of(std::move(behind)), Began::yes);
  EXPECT_TRUE(comes_about([&] {
    try {
      return group.call<where>(0).get() == "two after 1 restarts";
    } catch (const CallLost&) {
      return false;
    }
  }));
  EXPECT_EQ(runs_, 0) << "nothing is delivered again";
  EXPECT_EQ(group.call<add>(0, 1).get(), 11);
  EXPECT_EQ(group.worker(0), "two");
}

TEST_F(rpc_actor_restarts, what_is_sent_while_it_is_away_comes_in_order_once_it_is_back) {
  const auto group = me.spawn<Fragile>(
      {.workers = {"one"}, .supervision = {.on_death = OnDeath::same_worker}}, 10);
  kill("one", 1);
  EXPECT_TRUE(comes_about([&] { return !log.with("is to be restarted").empty(); }));
  auto late = group.with(50ms).call<add>(0, 100);
  auto cancelled = group.call<add>(0, 1000);
  cancelled.cancel();
  std::vector<Future<int>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(group.call<add>(0, 1));
  EXPECT_NE(text_of<Timeout>([&] { late.get(); }).find("was not back by the deadline"),
            std::string::npos);
  auto again = job.start("one", all());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(waiting[static_cast<size_t>(i)].get(), 11 + i);
  EXPECT_EQ(group.call<where>(0).get(), "one after 1 restarts");
}

TEST_F(rpc_actor_restarts, a_worker_that_dies_again_and_again_is_given_up_with_its_story) {
  const auto group =
      me.spawn<Fragile>({.workers = {"one"},
                         .supervision = {.on_death = OnDeath::same_worker, .most_restarts = 1},
                         .on_failure = told()},
                        10);
  kill("one", 1);
  std::optional<rpc::Worker> again = job.start("one", all());  // member 4
  EXPECT_TRUE(comes_about([&] {
    try {
      return group.call<add>(0, 1).get() == 11;
    } catch (const CallLost&) {
      return false;
    }
  }));
  kill("one", 4);
  EXPECT_TRUE(comes_about([&] { return heard().size() == 1; }));
  EXPECT_NE(heard().at(0).find("it was restarted once"), std::string::npos) << heard().at(0);
  EXPECT_NE(heard().at(0).find("worker 'one' is gone"), std::string::npos) << heard().at(0);
  EXPECT_EQ(began_of(group.call<add>(0, 1)), Began::no);
}

TEST_F(rpc_actor_restarts, patience_with_a_worker_that_does_not_come_back_has_an_end) {
  const auto group =
      me.spawn<Fragile>({.workers = {"one"},
                         .supervision = {.on_death = OnDeath::same_worker, .patience = 100ms},
                         .on_failure = told()},
                        10);
  kill("one", 1);
  EXPECT_TRUE(comes_about([&] { return heard().size() == 1; }));
  EXPECT_NE(heard().at(0).find("no worker that it may be restarted on came back"),
            std::string::npos)
      << heard().at(0);
  EXPECT_THROW(group.call<add>(0, 1).get(), CallLost);
}

TEST_F(rpc_actor_restarts, a_group_may_be_ended_while_an_actor_is_away) {
  std::optional<rpc::ActorGroup<Fragile>> group = me.spawn<Fragile>(
      {.workers = {"one"}, .supervision = {.on_death = OnDeath::same_worker}}, 10);
  kill("one", 1);
  EXPECT_TRUE(comes_about([&] { return !log.with("is to be restarted").empty(); }));
  auto waiting = group->call<add>(0, 1);
  group.reset();
  EXPECT_THROW(waiting.get(), Aborted);
}

}  // namespace trireme::rpc_actor_restarts_test
