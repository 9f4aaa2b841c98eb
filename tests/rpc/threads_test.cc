// SPDX-License-Identifier: Apache-2.0
// Handlers that wait: for other calls, for their caller, for each other.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"

namespace trireme::rpc_threads_test {
namespace {

using namespace rpc_test;
using rpc::Future;
using rpc::Promise;

/// Calls the other one back as long as there is something to count.
struct Node {
  std::optional<rpc::Worker> me;
  std::string other;
  Gate gate;
  std::atomic<int> most{0}, now{0};
  std::atomic<int64_t> budget_us{0};
  std::vector<Promise<int>> promises = std::vector<Promise<int>>(64);

  int bounce(int left);
  int hold(int x) {
    most = std::max(most.load(), ++now);
    gate.wait();
    --now;
    return x;
  }
  Future<int> bounce_later(int left);
  Future<int> answer_later(int which) { return promises[static_cast<size_t>(which)].future(); }
  Future<int> twice(int x);
  void remember(rpc::Call& call) {
    budget_us =
        std::chrono::duration_cast<std::chrono::microseconds>(call.deadline().remaining()).count();
  }
  void pass_on();
  int plain(int x) { return x; }
};

TRIREME_REMOTE(bounce, &Node::bounce);
TRIREME_REMOTE(hold, &Node::hold);
TRIREME_REMOTE(bounce_later, &Node::bounce_later);
TRIREME_REMOTE(answer_later, &Node::answer_later);
TRIREME_REMOTE(twice, &Node::twice);
TRIREME_REMOTE(remember, &Node::remember);
TRIREME_REMOTE(pass_on, &Node::pass_on);
TRIREME_REMOTE(plain, &Node::plain);

int Node::bounce(int left) {
  return left == 0 ? 0 : 1 + me->peer(other).async<struct bounce>(left - 1).get();
}
Future<int> Node::bounce_later(int left) {
  if (left == 0) co_return 0;
  const rpc::Peer peer = me->peer(other);
  co_return 1 + co_await peer.async<struct bounce_later>(left - 1);
}
Future<int> Node::twice(int x) {
  const rpc::Peer peer = me->peer(other);
  return peer.async<struct plain>(x).then([](int y) { return 2 * y; });
}
void Node::pass_on() { me->peer(other).sync<struct remember>(); }

class rpc_threads : public ::testing::Test {
 protected:
  rpc_threads() {
    a->other = "b";
    b->other = "a";
    a->me = start("a", a);
    b->me = start("b", b);
  }
  ~rpc_threads() override {
    a->gate.open();
    b->gate.open();
    // Each worker keeps its object, which has a handle of the worker.
    for (auto* node : {a.get(), b.get()}) {
      node->me->shutdown({.graceful = false, .deadline = kPlenty});
      node->me.reset();
    }
  }
  rpc::Worker start(const std::string& name, const std::shared_ptr<Node>& node) {
    return job.start(
        name,
        {rpc::offer<bounce, hold, bounce_later, answer_later, twice, remember, pass_on, plain>(
            node)});
  }

  Job job{200us, 3};
  std::shared_ptr<Node> a = std::make_shared<Node>(), b = std::make_shared<Node>();
};

}  // namespace

TEST_F(rpc_threads, a_handler_calls_back_its_caller_who_waits) {
  EXPECT_EQ(a->me->peer("b").sync<bounce>(1), 1);
  EXPECT_EQ(a->me->peer("b").sync<bounce>(6), 6);
}

TEST_F(rpc_threads, handlers_that_wait_get_more_threads_up_to_the_limit) {
  // Ten calls within calls: five wait on each worker, of whose six threads one answers.
  EXPECT_EQ(a->me->peer("b").sync<bounce>(10), 10);
  EXPECT_LE(a->me->threads(), 6);
  EXPECT_LE(b->me->threads(), 6);
}

TEST_F(rpc_threads, at_the_limit_is_an_error_with_the_chain_of_calls) {
  const auto text = text_of<ResourceError>([&] { a->me->peer("b").sync<bounce>(40); });
  EXPECT_NE(text.find("has no thread left for it: all 6 wait"), text.npos) << text;
  EXPECT_NE(text.find("'bounce' on 'b' → 'bounce' on 'a' → 'bounce' on 'b'"), text.npos) << text;
  EXPECT_EQ(a->me->peer("b").sync<bounce>(3), 3) << "the workers are well";
}

TEST_F(rpc_threads, a_handler_that_returns_a_future_holds_no_thread) {
  EXPECT_EQ(a->me->peer("b").sync<bounce_later>(40), 40);
  EXPECT_LE(a->me->threads(), 6);
  const rpc::Peer peer = a->me->peer("b");
  std::vector<Future<int>> waiting;
  for (int i = 0; i < 64; ++i) waiting.push_back(peer.async<answer_later>(i));
  EXPECT_EQ(peer.sync<plain>(5), 5) << "64 unanswered calls leave threads to others";
  for (int i = 63; i >= 0; --i) b->promises[static_cast<size_t>(i)].set(i);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(waiting[static_cast<size_t>(i)].get(), i);
}

TEST_F(rpc_threads, a_handler_may_pass_on_the_future_of_its_own_call) {
  EXPECT_EQ(a->me->peer("b").sync<twice>(8), 16);
}

TEST_F(rpc_threads, calls_without_end_are_refused_when_the_chain_is_64_long) {
  const auto text = text_of<UsageError>([&] { a->me->peer("b").sync<bounce_later>(1000); });
  EXPECT_NE(text.find("calls within calls are more than 64 deep"), text.npos) << text;
}

TEST_F(rpc_threads, handlers_that_compute_are_no_more_than_there_may_be) {
  const rpc::Peer peer = a->me->peer("b");
  std::vector<Future<int>> futures;
  for (int i = 0; i < 10; ++i) futures.push_back(peer.async<hold>(i));
  ASSERT_TRUE(b->gate.has_waiting(2));
  b->gate.open();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(futures[static_cast<size_t>(i)].get(), i);
  EXPECT_LE(b->most, 2);
}

TEST_F(rpc_threads, messages_are_received_while_every_handler_computes) {
  const rpc::Peer peer = a->me->peer("b");
  std::vector<Future<int>> futures;
  for (int i = 0; i < 2; ++i) futures.push_back(peer.async<hold>(i));
  ASSERT_TRUE(b->gate.has_waiting(2));
  // b's own call is answered though both of its handlers are busy.
  EXPECT_EQ(b->me->peer("a").sync<plain>(1), 1);
  auto cancelled = peer.with(20ms).async<plain>(1);
  EXPECT_THROW(cancelled.get(), Timeout);
  b->gate.open();
  for (auto& future : futures) future.get();
}

TEST_F(rpc_threads, nested_calls_inherit_the_deadline) {
  a->me->peer("b").with(5s).sync<pass_on>();  // b calls a, with a deadline of 30 s of its own
  EXPECT_GT(a->budget_us, 0);
  EXPECT_LE(a->budget_us, 5'000'000);
  b->me->peer("a").with(Duration::max()).sync<remember>();
  EXPECT_GT(a->budget_us, 3'600'000'000) << "no deadline";
}

TEST_F(rpc_threads, a_worker_that_does_little_has_fewer_threads_than_it_may) {
  EXPECT_EQ(a->me->peer("b").sync<plain>(1), 1);
  EXPECT_LE(a->me->threads(), 4);
}

}  // namespace trireme::rpc_threads_test
