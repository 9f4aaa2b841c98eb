// SPDX-License-Identifier: Apache-2.0
// Actors that would wait for themselves.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tests/rpc/workers.h"
#include "trireme/rpc/actor/actor.h"

namespace trireme::rpc_actor_self_wait_test {
namespace {

using namespace rpc_test;
using rpc::ActorId;
using rpc::ActorPlace;
using rpc::Future;

Gate* gate = nullptr;
std::atomic<int>* noted = nullptr;

struct Node {
  explicit Node(const ActorPlace& place) : me(place) {}

  int value(int x) { return x; }
  void note(int x) { *noted += x; }
  /// Waits for the others in turn; the last one is asked for x.
  int ask(const std::vector<ActorId<Node>>& path, int x);
  /// The same, without waiting.
  Future<int> ask_later(const std::vector<ActorId<Node>>& path, int x);
  /// Sends ask() on and returns.
  void send_on(const std::vector<ActorId<Node>>& path, int x);
  Future<int> coroutine(const ActorId<Node>& other, int x);
  /// Has another call this one while this one waits for a third.
  int call_me_while_i_wait(const ActorId<Node>& self, const ActorId<Node>& caller,
                           const ActorId<Node>& third);
  int hold(int x) {
    gate->wait();
    return x;
  }
  /// Calls the other one and answers without waiting for it.
  int ask_and_answer(const ActorId<Node>& other, int x);
  int ask_for_answer(const ActorId<Node>& self, const ActorId<Node>& other, int x);
  void broadcast_to(const ActorId<Node>& other, int x);
  int by_a_plain_handler(const ActorId<Node>& self, int x);

  ActorPlace me;
};

TRIREME_ACTOR(Node, const ActorPlace&);
TRIREME_REMOTE(value, &Node::value);
TRIREME_REMOTE(note, &Node::note);
TRIREME_REMOTE(ask, &Node::ask);
TRIREME_REMOTE(ask_later, &Node::ask_later);
TRIREME_REMOTE(send_on, &Node::send_on);
TRIREME_REMOTE(coroutine, &Node::coroutine);
TRIREME_REMOTE(call_me_while_i_wait, &Node::call_me_while_i_wait);
TRIREME_REMOTE(hold, &Node::hold);
TRIREME_REMOTE(ask_and_answer, &Node::ask_and_answer);
TRIREME_REMOTE(ask_for_answer, &Node::ask_for_answer);
TRIREME_REMOTE(broadcast_to, &Node::broadcast_to);
TRIREME_REMOTE(by_a_plain_handler, &Node::by_a_plain_handler);

/// An ordinary function of a worker, which calls an actor.
struct Plain {
  std::optional<rpc::Worker> me;
  int relay(const ActorId<Node>& to, int x) {
    return rpc::Actor<Node>(*me, to).call<value>(x).get();
  }
};
TRIREME_REMOTE(relay, &Plain::relay);

std::vector<ActorId<Node>> rest(const std::vector<ActorId<Node>>& path) {
  return {path.begin() + 1, path.end()};
}

int Node::ask(const std::vector<ActorId<Node>>& path, int x) {
  if (path.empty()) return x;
  return 1 + rpc::Actor<Node>(me.worker(), path[0]).call<struct ask>(rest(path), x).get();
}
Future<int> Node::ask_later(const std::vector<ActorId<Node>>& path, int x) {
  if (path.empty()) return rpc::ready(int(x));
  return rpc::Actor<Node>(me.worker(), path[0])
      .call<struct ask_later>(rest(path), x)
      .then([](int y) { return y + 1; });
}
void Node::send_on(const std::vector<ActorId<Node>>& path, int x) {
  if (path.empty()) return note(x);
  auto sent =
      rpc::Actor<Node>(me.worker(), path[0]).call<struct send_on>(rest(path), x).then([] {});
}
Future<int> Node::coroutine(const ActorId<Node>& other, int x) {
  const rpc::Actor<Node> actor(me.worker(), other);
  co_return 1 + co_await actor.call<struct value>(x);
}
int Node::call_me_while_i_wait(const ActorId<Node>& self, const ActorId<Node>& caller,
                               const ActorId<Node>& third) {
  auto others = rpc::Actor<Node>(me.worker(), caller).call<struct ask>(std::vector{self}, 5);
  const int waited = rpc::Actor<Node>(me.worker(), third).call<struct hold>(3).get();
  (void)others.then([](int y) { *noted += y; });
  return waited;
}
int Node::ask_and_answer(const ActorId<Node>& other, int x) {
  auto sent =
      rpc::Actor<Node>(me.worker(), other).call<struct value>(x).then([](int y) { *noted += y; });
  gate->wait();  // long enough for the other to be asked
  return 1;
}
int Node::ask_for_answer(const ActorId<Node>& self, const ActorId<Node>& other, int x) {
  return rpc::Actor<Node>(me.worker(), other).call<struct ask_and_answer>(self, x).get();
}
void Node::broadcast_to(const ActorId<Node>& other, int x) {
  rpc::Actor<Node>(me.worker(), other).tell<struct note>(x);
}
int Node::by_a_plain_handler(const ActorId<Node>& self, int x) {
  return me.worker().peer("plain").sync<relay>(self, x);
}

rpc::Offer all() {
  return rpc::offer_actor<Node, value, note, ask, ask_later, send_on, coroutine,
                          call_me_while_i_wait, hold, ask_and_answer, ask_for_answer, broadcast_to,
                          by_a_plain_handler>();
}

class rpc_actor_self_wait : public ::testing::Test {
 protected:
  rpc_actor_self_wait() {
    gate = &gate_;
    noted = &noted_;
  }
  ~rpc_actor_self_wait() override { gate_.open(); }

  /// The text of the UsageError, which comes long before any deadline.
  std::string refused(const std::function<void()>& call) {
    const auto begin = Clock::now();
    const auto text = text_of<UsageError>(call);
    EXPECT_LT(Clock::now() - begin, kPlenty / 3);
    return text;
  }

  Gate gate_;
  std::atomic<int> noted_{0};
  Job job{100us, 3};
  rpc::Worker one = job.start("one", {all()}), two = job.start("two", {all()});
  rpc::Worker me = job.start("me");
  rpc::ActorGroup<Node> nodes =
      me.spawn<Node>(rpc::SpawnOptions{.workers = {"one", "two"}, .per_worker = 2});
  const ActorId<Node> a = nodes.id(0), b = nodes.id(2), c = nodes.id(3);
};

}  // namespace

TEST_F(rpc_actor_self_wait, one_that_waits_for_itself_gets_an_error_at_once) {
  const auto text = refused([&] { nodes.call<ask>(0, std::vector{a}, 1).get(); });
  EXPECT_NE(text.find("actor 'Node' 0 of 4 on worker 'one' would wait for itself: 'Node.ask' on "
                      "'one' → 'Node.ask' on 'one'. Let it continue with then()"),
            text.npos)
      << text;
  EXPECT_EQ(nodes.call<value>(0, 3).get(), 3) << "it goes on";
}

TEST_F(rpc_actor_self_wait, through_other_actors_gets_the_whole_chain) {
  const auto text = refused([&] { nodes.call<ask>(0, std::vector{b, a}, 1).get(); });
  EXPECT_NE(text.find("'Node.ask' on 'one' → 'Node.ask' on 'two' → 'Node.ask' on 'one'. Let"),
            text.npos)
      << text;
  const auto longer = refused([&] { nodes.call<ask>(0, std::vector{b, c, b}, 1).get(); });
  EXPECT_NE(longer.find("actor 'Node' 2 of 4 on worker 'two' would wait for itself"), longer.npos)
      << longer;
  EXPECT_EQ(nodes.call<ask>(0, std::vector{b, c}, 1).get(), 3) << "no circle";
}

TEST_F(rpc_actor_self_wait, through_a_plain_handler_too) {
  auto plain = std::make_shared<Plain>();
  auto worker = job.start("plain", {rpc::offer<relay>(plain)});
  plain->me = worker;
  const auto text = refused([&] { nodes.call<by_a_plain_handler>(0, a, 1).get(); });
  EXPECT_NE(text.find("'relay' on 'plain' → 'Node.value' on 'one'"), text.npos) << text;
  EXPECT_EQ(nodes.call<by_a_plain_handler>(0, b, 4).get(), 4);
  worker.shutdown({.graceful = false, .deadline = kPlenty});
  plain->me.reset();
}

TEST_F(rpc_actor_self_wait, by_the_future_that_its_handler_returned) {
  refused([&] { nodes.call<ask_later>(0, std::vector{a}, 1).get(); });
  refused([&] { nodes.call<ask_later>(0, std::vector{b, a}, 1).get(); });
  refused([&] { nodes.call<coroutine>(0, a, 1).get(); });
  EXPECT_EQ(nodes.call<coroutine>(0, b, 1).get(), 2);
  EXPECT_EQ(nodes.call<ask_later>(0, std::vector{b, c}, 1).get(), 3);
}

TEST_F(rpc_actor_self_wait, continuing_with_then_is_fine) {
  nodes.call<send_on>(0, std::vector{a, a, a}, 7).get();
  EXPECT_TRUE(comes_about([&] { return noted_ == 7; }));
  nodes.call<send_on>(0, std::vector{b, a, c, a}, 5).get();
  EXPECT_TRUE(comes_about([&] { return noted_ == 12; }));
}

TEST_F(rpc_actor_self_wait, a_message_for_whose_answer_nobody_waits_is_fine) {
  nodes.call<broadcast_to>(0, a, 3).get();
  EXPECT_TRUE(comes_about([&] { return noted_ == 3; }));
}

TEST_F(rpc_actor_self_wait, being_asked_by_one_that_answers_without_waiting_is_fine) {
  auto answer = nodes.call<ask_for_answer>(0, a, b, 7);
  ASSERT_TRUE(gate_.has_waiting(1));
  const auto begin = Clock::now();
  EXPECT_TRUE(comes_about([&] { return Clock::now() - begin > 20ms; })) << "the question is there";
  EXPECT_EQ(noted_, 0);
  gate_.open();
  EXPECT_EQ(answer.get(), 1);
  EXPECT_TRUE(comes_about([&] { return noted_ == 7; })) << "it was answered after the turn";
}

TEST_F(rpc_actor_self_wait, waiting_for_another_actor_meanwhile_is_fine) {
  auto answer = nodes.call<call_me_while_i_wait>(0, a, b, c);
  ASSERT_TRUE(gate_.has_waiting(1)) << "it waits for c";
  EXPECT_EQ(nodes.call<value>(1, 1).get(), 1);
  gate_.open();
  EXPECT_EQ(answer.get(), 3);
  EXPECT_TRUE(comes_about([&] { return noted_ == 6; })) << "b was answered after that turn";
}

}  // namespace trireme::rpc_actor_self_wait_test
