// SPDX-License-Identifier: Apache-2.0
// Contexts that calls carry, with one that only counts.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"

namespace trireme::rpc_contexts_test {
namespace {

using namespace rpc_test;
using rpc::Future;
using rpc::detail::CallContext;
using rpc::detail::Crossing;
using rpc::wire::Context;

struct CountedCrossing final : Crossing {
  explicit CountedCrossing(Context context) : context(context) {}
  Context said() const override { return context; }
  const Context context;
};

/// Calls within it are numbered; those to workers without the method "sees_context" take no part.
struct CountedContext final : CallContext {
  explicit CountedContext(Context begun) : begun(begun) {}
  std::shared_ptr<Crossing> leaving(const std::shared_ptr<rpc::detail::Line>& to) override {
    if (!to->offers("sees_context")) return nullptr;
    Context said = begun;
    said.message = ++calls;
    return std::make_shared<CountedCrossing>(said);
  }
  const Context begun;
  std::atomic<uint64_t> calls{0};
};

struct CountingCarrier final : rpc::detail::Carrier {
  void joined(const std::string&, int64_t member,
              const std::shared_ptr<rpc::detail::Executor>&) override {
    mine = member;
  }
  Arrived arrived(const Context& context, const std::shared_ptr<rpc::detail::Line>& from) override {
    check<UsageError>(context.number != 99, "context 99 is over");
    EXPECT_NE(from->member(), mine.load());
    ++came;
    return {std::make_shared<CountedContext>(context), std::make_shared<CountedCrossing>(context)};
  }
  void lost(const rpc::detail::Line&) override { ++ended; }
  std::atomic<int64_t> mine{-1};
  std::atomic<int> came{0}, ended{0};
};

uint64_t number_here() {
  const auto* context = dynamic_cast<CountedContext*>(rpc::detail::current_context().get());
  return context ? context->begun.number : 0;
}

struct Service {
  std::function<rpc::Peer()> next;
  uint64_t sees() { return number_here(); }
  std::vector<uint64_t> sees_further();
  Future<uint64_t> sees_later();
};
TRIREME_REMOTE(sees_context, &Service::sees);
TRIREME_REMOTE(sees_further, &Service::sees_further);
TRIREME_REMOTE(sees_later, &Service::sees_later);
TRIREME_REMOTE(sees_nothing, [] { return number_here(); });
TRIREME_REMOTE(waits_at_gate, &Gate::wait);

// Its own number, that of a call within it, and that of what continues after one.
std::vector<uint64_t> Service::sees_further() {
  const rpc::Peer peer = next();
  const uint64_t there = peer.sync<sees_context>();
  const uint64_t then =
      peer.async<sees_context>().then([](uint64_t) { return number_here(); }).get();
  return {number_here(), there, then};
}
Future<uint64_t> Service::sees_later() {
  return next().async<sees_context>().then([](uint64_t) { return number_here(); });
}

class rpc_contexts : public ::testing::Test {
 protected:
  rpc::Worker start(const std::string& name) {
    auto service = std::make_shared<Service>();
    auto carrier = std::make_shared<CountingCarrier>();
    services.push_back(service);
    carriers.push_back(carrier);
    auto offer = rpc::offer<sees_context, sees_further, sees_later>(service);
    offer.carrier = carrier;
    return job.start(name, {offer, rpc::offer<sees_nothing>()});
  }
  std::shared_ptr<CountedContext> context(uint64_t number) {
    return std::make_shared<CountedContext>(Context{carriers[0]->mine, number, 0});
  }

  Job job{200us, 3};
  std::vector<std::shared_ptr<Service>> services;
  std::vector<std::shared_ptr<CountingCarrier>> carriers;
  rpc::Worker me = start("me"), one = start("one"), two = start("two");
  rpc::Peer peer = me.peer("one");
  void SetUp() override {
    services[1]->next = [this] { return one.peer("two"); };
  }
  void TearDown() override { services[1]->next = nullptr; }
};

}  // namespace

TEST_F(rpc_contexts, go_along_with_calls_and_with_what_those_call) {
  EXPECT_EQ(peer.sync<sees_context>(), 0u);
  rpc::detail::ContextScope scope(context(7));
  EXPECT_EQ(peer.sync<sees_context>(), 7u);
  EXPECT_EQ(peer.sync<sees_nothing>(), 7u);
  EXPECT_EQ(peer.sync<sees_further>(), (std::vector<uint64_t>{7, 7, 7}));
  EXPECT_EQ(peer.sync<sees_later>(), 7u);
  EXPECT_EQ(carriers[1]->came, 4);
  EXPECT_EQ(carriers[2]->came, 3);
}

TEST_F(rpc_contexts, belong_to_a_thread_and_to_what_continues_after_its_futures) {
  const auto mine = context(8);
  Future<uint64_t> later;
  {
    rpc::detail::ContextScope scope(mine);
    later = peer.async<sees_context>().then([](uint64_t) { return number_here(); });
    {
      rpc::detail::ContextScope inner(context(9));
      EXPECT_EQ(peer.sync<sees_context>(), 9u);
    }
    EXPECT_EQ(number_here(), 8u);
    std::thread other([&] { EXPECT_EQ(peer.sync<sees_context>(), 0u); });
    other.join();
  }
  EXPECT_EQ(number_here(), 0u);
  EXPECT_EQ(later.get(), 8u);
}

TEST_F(rpc_contexts, of_many_threads_do_not_mix) {
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 6; ++t)
    threads.emplace_back([&, t] {
      rpc::detail::ContextScope scope(context(t));
      for (int i = 0; i < 40; ++i) {
        auto later = peer.async<sees_later>();
        EXPECT_EQ(peer.sync<sees_context>(), t);
        EXPECT_EQ(later.get(), t);
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(rpc_contexts, that_are_refused_fail_the_call_alone) {
  {
    rpc::detail::ContextScope scope(context(99));
    const auto text = text_of<UsageError>([&] { peer.sync<sees_context>(); });
    EXPECT_NE(text.find("context 99 is over"), text.npos) << text;
  }
  EXPECT_EQ(peer.sync<sees_context>(), 0u);
}

TEST_F(rpc_contexts, do_not_go_to_workers_that_take_no_part) {
  auto plain = job.start("plain", {rpc::offer<sees_nothing>()});
  rpc::detail::ContextScope scope(context(5));
  EXPECT_EQ(me.peer("plain").sync<sees_nothing>(), 0u);
}

TEST_F(rpc_contexts, a_worker_that_takes_no_part_refuses_one_that_comes_all_the_same) {
  // As a program would that has the method and no carrier.
  auto plain = job.start("plain", {rpc::offer<sees_context>(std::make_shared<Service>())});
  rpc::detail::ContextScope scope(context(5));
  const auto text = text_of<UsageError>([&] { me.peer("plain").sync<sees_context>(); });
  EXPECT_NE(text.find("worker 'plain' takes no part in contexts"), text.npos) << text;
}

TEST_F(rpc_contexts, carriers_hear_of_workers_that_are_gone) {
  EXPECT_EQ(peer.sync<sees_context>(), 0u);
  const int before = carriers[1]->ended;
  job.net->kill("me");
  EXPECT_TRUE(comes_about([&] { return carriers[1]->ended > before; }));
}

TEST_F(rpc_contexts, a_method_that_is_answered_at_once_needs_no_thread) {
  // What a handler waits for may have to come while all threads wait.
  auto gate = std::make_shared<Gate>();
  rpc::Offer quick = rpc::offer<sees_nothing>();
  quick.methods[0].at_once = true;
  auto busy = job.start("busy", {quick, rpc::offer<waits_at_gate>(gate)});
  const rpc::Peer to = me.peer("busy");
  std::vector<Future<void>> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(to.async<waits_at_gate>());
  ASSERT_TRUE(gate->has_waiting(2));  // all that compute at a time
  EXPECT_EQ(to.sync<sees_nothing>(), 0u);
  gate->open();
  for (auto& one : waiting) one.get();
}

TEST_F(rpc_contexts, watchers_of_offers_hear_of_workers_that_are_gone) {
  struct Watcher final : rpc::detail::LineWatcher {
    void lost(const rpc::detail::Line& line) override {
      if (line.peer() == "me") ++gone;
    }
    std::atomic<int> gone{0};
  };
  auto watcher = std::make_shared<Watcher>();
  rpc::Offer offer = rpc::offer<sees_nothing>();
  offer.watchers.push_back(watcher);
  auto watching = job.start("watching", {offer});
  me.peer("watching").sync<sees_nothing>();
  EXPECT_EQ(watcher->gone, 0);
  job.net->kill("me");
  EXPECT_TRUE(comes_about([&] { return watcher->gone == 1; }));
}

TEST(rpc_contexts_init, one_offer_at_most_carries_them) {
  Job job;
  rpc::Offer first{{}, std::make_shared<CountingCarrier>()};
  rpc::Offer second{{}, std::make_shared<CountingCarrier>()};
  EXPECT_THROW(job.start("two", {first, second}), UsageError);
}

}  // namespace trireme::rpc_contexts_test
