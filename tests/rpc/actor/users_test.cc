// SPDX-License-Identifier: Apache-2.0
// What users of actors do wrong, and too often.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"
#include "tests/support/sanitized.h"
#include "trireme/rpc/actor/actor.h"
#include "trireme/rpc/transit.h"

namespace trireme::rpc_actor_users_test {
namespace {

using namespace rpc_test;
using rpc::ActorPlace;
using rpc::Began;
using rpc::CallLost;

Gate* gate = nullptr;
std::atomic<int> alive{0}, runs{0};

struct Sim {
  explicit Sim(int kind) : block(1 << 14) {
    if (kind < 0) throw std::invalid_argument("a Sim's kind is not negative");
    if (kind == 99) throw NumericError("a Sim of kind 99 is not finite");
    ++alive;
  }
  ~Sim() { --alive; }
  double run(int64_t steps) {
    ++runs;
    if (steps < 0) throw std::runtime_error("time runs forwards");
    return static_cast<double>(steps) / 2;
  }
  int slow(rpc::Call& call) {
    ++runs;
    gate->wait();
    return call.stop_token().stop_requested();
  }
  std::vector<char> block;
};
TRIREME_ACTOR(Sim, int);
TRIREME_REMOTE(run, &Sim::run);
TRIREME_REMOTE(slow, &Sim::slow);
struct Other {
  void go() {}
};
TRIREME_REMOTE(go, &Other::go);

// A wrong call does not compile.
static_assert(rpc::detail::CanSend<Sim, run, int>);
static_assert(!rpc::detail::CanSend<Sim, run>);
static_assert(!rpc::detail::CanSend<Sim, run, int, int>);
static_assert(!rpc::detail::CanSend<Sim, run, std::string>);
static_assert(!rpc::detail::CanSend<Sim, go>, "another class's method");
template <class... P>
concept CanSpawn = rpc::detail::Fits<rpc::detail::ConstructorValues<Sim>, P...>::value;
static_assert(CanSpawn<int> && CanSpawn<char>);
static_assert(!CanSpawn<> && !CanSpawn<std::string> && !CanSpawn<int, int>);

/// The program of a colleague whose Sim is another one.
namespace elsewhere {
struct Sim {
  explicit Sim(const std::string&) {}
  double run(int64_t) { return 0; }
};
TRIREME_ACTOR(Sim, const std::string&);
TRIREME_REMOTE(run, &Sim::run);
}  // namespace elsewhere

class rpc_actor_users : public ::testing::Test {
 protected:
  rpc_actor_users() {
    gate = &gate_;
    runs = 0;
  }
  ~rpc_actor_users() override { gate_.open(); }

  Gate gate_;
  Job job;
  rpc::Worker host = job.start("sim0", {rpc::offer_actor<Sim, run, slow>()});
  rpc::Worker me = job.start("me");
};

}  // namespace

TEST_F(rpc_actor_users, spawn_where_the_class_is_not_offered) {
  auto plain = job.start("plain");
  const auto text = text_of<UsageError>([&] { me.spawn<Sim>({.workers = {"sim0", "plain"}}, 1); });
  EXPECT_NE(text.find("worker 'plain' offers no method 'actor Sim': it must be among the offers"),
            text.npos)
      << text;
  EXPECT_TRUE(comes_about([&] { return alive == 0; })) << "those that were made have ended";
}

TEST_F(rpc_actor_users, spawn_a_class_of_another_program) {
  const auto text =
      text_of<Mismatch>([&] { me.spawn<elsewhere::Sim>({.workers = {"sim0"}}, "fast"); });
  EXPECT_NE(text.find("'actor Sim' is void(i32) on worker 'sim0' and void(str) here"), text.npos)
      << text;
}

TEST_F(rpc_actor_users, spawn_where_the_constructor_throws) {
  const auto text = text_of<rpc::RemoteError>([&] { me.spawn<Sim>({.workers = {"sim0"}}, -1); });
  EXPECT_NE(text.find("std::invalid_argument: a Sim's kind is not negative"), text.npos) << text;
  EXPECT_NE(text.find("worker 'sim0'"), text.npos) << text;
  EXPECT_NE(text_of<NumericError>([&] {
              me.spawn<Sim>({.workers = {"sim0"}}, 99);
            }).find("is not finite"),
            std::string::npos)
      << "ours keep their class";
  EXPECT_EQ(me.spawn<Sim>({.workers = {"sim0"}}, 1).call<run>(0, 4).get(), 2.0);
}

TEST_F(rpc_actor_users, a_method_that_throws_is_a_RemoteError_of_that_call) {
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  const auto text = text_of<rpc::RemoteError>([&] { sims.call<run>(0, -1).get(); });
  EXPECT_NE(text.find("a handler on worker 'sim0' threw std::runtime_error: time runs forwards"),
            text.npos)
      << text;
  testing::CapturedLog log;
  sims.broadcast<run>(-1);
  EXPECT_EQ(sims.call<run>(0, 2).get(), 1.0);
  EXPECT_EQ(log.with("actor 'Sim' 0 of 1 on worker 'sim0': 'Sim.run', for whose answer nobody "
                     "waits, threw time runs forwards")
                .size(),
            1u);
}

TEST_F(rpc_actor_users, a_message_within_a_context_of_autograd_is_refused) {
  struct Context final : rpc::detail::CallContext {
    std::shared_ptr<rpc::detail::Crossing> leaving(
        const std::shared_ptr<rpc::detail::Line>&) override {
      return nullptr;
    }
  };
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  {
    const rpc::detail::ContextScope scope(std::make_shared<Context>());
    const auto text = text_of<UsageError>([&] { sims.call<run>(0, 2).get(); });
    EXPECT_NE(text.find("gradients do not go back through actors"), text.npos) << text;
  }
  EXPECT_EQ(sims.call<run>(0, 2).get(), 1.0);
}
TEST_F(rpc_actor_users, spawn_over_no_worker_and_over_one_that_never_comes) {
  EXPECT_NE(text_of<UsageError>([&] {
              me.spawn<Sim>(std::vector<std::string>{}, 1);
            }).find("name at least one worker"),
            std::string::npos);
  EXPECT_NE(text_of<UsageError>([&] {
              me.spawn<Sim>({.workers = {"sim0"}, .per_worker = 0}, 1);
            }).find("per_worker is 0"),
            std::string::npos);
  EXPECT_NE(text_of<Timeout>([&] {
              me.spawn<Sim>({.workers = {"sim0", "sim1"}, .deadline = 50ms}, 1);
            }).find("no worker 'sim1' has joined by the deadline"),
            std::string::npos);
}

TEST_F(rpc_actor_users, a_name_that_another_group_has) {
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}, .name = "fast"}, 1);
  EXPECT_NE(text_of<UsageError>([&] {
              me.spawn<Sim>({.workers = {"sim0"}, .name = "fast"}, 1);
            }).find("this worker has a group 'fast' already"),
            std::string::npos);
  EXPECT_EQ(sims.call<run>(0, 2).get(), 1.0) << "the first one is well";
  const auto third = me.spawn<Sim>({.workers = {"sim0"}}, 1),
             fourth = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  EXPECT_EQ(third.name(), "Sim");
  EXPECT_EQ(fourth.name(), "Sim-2");
}

TEST_F(rpc_actor_users, calls_after_the_group_was_ended_and_of_ranks_that_there_are_not) {
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  const rpc::Actor<Sim> other(host, sims.id(0));
  EXPECT_NE(text_of<UsageError>([&] {
              sims.call<run>(1, 2).get();
            }).find("group 'Sim' has actors 0 to 0, and no 1"),
            std::string::npos);
  EXPECT_THROW(sims.call<run>(-1, 2).get(), UsageError);
  sims.end();
  sims.end();
  EXPECT_NE(text_of<Aborted>([&] {
              sims.call<run>(0, 2).get();
            }).find("the group 'Sim' of actors was ended"),
            std::string::npos);
  sims.broadcast<run>(2);  // goes nowhere
  EXPECT_TRUE(comes_about([&] { return alive == 0; }));
  const auto text = text_of<CallLost>([&] { other.call<run>(2).get(); });
  EXPECT_NE(text.find("it has ended"), text.npos) << text;
  EXPECT_EQ(runs, 0);
  auto reborn = me.spawn<Sim>({.workers = {"sim0"}, .name = "Sim"}, 1);
  EXPECT_EQ(reborn.call<run>(0, 2).get(), 1.0) << "the name is free again";
}

TEST_F(rpc_actor_users, a_slow_actor_and_a_deadline) {
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  auto held = sims.call<slow>(0);
  ASSERT_TRUE(gate_.has_waiting(1));
  EXPECT_NE(text_of<Timeout>([&] {
              sims.with(50ms).call<run>(0, 2).get();
            }).find("'Sim.run' on worker 'sim0'"),
            std::string::npos);
  auto replies = sims.with(50ms).gather<run>(2);
  EXPECT_FALSE(replies[0].ok());
  gate_.open();
  EXPECT_EQ(held.get(), 0);
  EXPECT_EQ(sims.call<run>(0, 6).get(), 3.0);
  EXPECT_EQ(runs, 2) << "what was given up before its turn does not run";
}

TEST_F(rpc_actor_users, an_actor_that_is_ended_in_the_middle_is_told_to_stop) {
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  auto held = sims.call<slow>(0);
  auto behind = sims.call<run>(0, 2);
  ASSERT_TRUE(gate_.has_waiting(1));
  sims.end();
  const auto text = text_of<CallLost>([&] { behind.get(); });
  EXPECT_NE(text.find("has ended: who spawned it has ended it"), text.npos) << text;
  gate_.open();
  EXPECT_EQ(held.get(), 1) << "its handler saw the stop token, and its answer still comes";
  EXPECT_TRUE(comes_about([&] { return alive == 0; }));
}

TEST_F(rpc_actor_users, memory_and_threads_return_after_a_thousand_spawns) {
  const auto cycle = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
      EXPECT_EQ(sims.call<run>(0, 2).get(), 1.0);
      if (i % 2) sims.end();
    }
    EXPECT_TRUE(comes_about([&] { return alive == 0; }));
  };
  cycle(100);
  const auto before = ::mallinfo2().uordblks;
  cycle(1000);
  const auto after = ::mallinfo2().uordblks;
  // A thousand Sims are 16 MB; what a spawn left behind would be some hundred bytes each.
  EXPECT_TRUE(testing::kSanitized || after < before + (64 << 10)) << before << " → " << after;
  EXPECT_LE(host.threads(), 6);
  EXPECT_LE(me.threads(), 6);
}

TEST_F(rpc_actor_users, a_hostile_worker_s_numbers_and_descriptions_are_refused) {
  // As bytes: what a program that is not ours may send under the names of our methods.
  const auto sims = me.spawn<Sim>({.workers = {"sim0"}}, 1);
  testing::CapturedLog log;
  job.net->intercept("evil", [](channel::Message& message) {
    if (message.bytes[0] == 2 && message.bytes.size() > 40) message.bytes.resize(40);
    return true;
  });
  auto evil = job.start("evil");
  EXPECT_THROW(evil.spawn<Sim>({.workers = {"sim0"}, .deadline = 5s}, 1), Error);
  EXPECT_THROW(rpc::Actor<Sim>(evil, {"sim0", 12345}).call<run>(1).get(), Error);
  EXPECT_EQ(sims.call<run>(0, 2).get(), 1.0) << "others go on";
  EXPECT_THROW(rpc::Actor<Sim>(me, {"sim0", 12345}).call<run>(1).get(), CallLost);
}

}  // namespace trireme::rpc_actor_users_test
