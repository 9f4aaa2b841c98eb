// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "tests/channel/tcp_workers.h"
#include "tests/support/forked.h"
#include "tests/support/refusals.h"
#include "tests/support/sanitized.h"
#include "trireme/base/error.h"

namespace trireme::channel::tcp_hub_test {

using namespace tcp;

namespace {

using trireme::testing::has;
using trireme::testing::in_time;
using trireme::testing::Listening;
using trireme::testing::pattern;
using trireme::testing::same;
using trireme::testing::Worker;
using namespace std::chrono_literals;

struct Pair {
  Pair() : to(a.open(b, heard)) {}
  Worker a{"a"}, b{"b"};
  std::shared_ptr<Listening> heard = std::make_shared<Listening>();
  std::shared_ptr<Channel> to;
};

}  // namespace

TEST(channel_tcp_hub, both_ends_know_each_other_and_messages_go_both_ways) {
  Pair pair;
  EXPECT_EQ(pair.to->peer().name, "b");
  EXPECT_EQ(pair.b.accepted()->peer().name, "a");
  EXPECT_EQ(pair.b.accepted()->peer().generation, 1u);
  auto made = pair.to->empty(3);
  std::memcpy(made.get(), "xyz", 3);
  EXPECT_TRUE(pair.to->send({"there", {{made, 3}, {nullptr, 0}, pattern(1000, 1)}}));
  auto came = pair.b.heard()->next();
  ASSERT_TRUE(came);
  EXPECT_EQ(came->bytes, "there");
  ASSERT_EQ(came->bodies.size(), 3u);
  EXPECT_EQ(std::memcmp(came->bodies[0].data.get(), "xyz", 3), 0);
  EXPECT_EQ(came->bodies[1].bytes, 0u);
  EXPECT_TRUE(same(came->bodies[2], pattern(1000, 1)));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(came->bodies[2].data.get()) % 64, 0u);
  EXPECT_TRUE(pair.b.accepted()->send({"back", {}}));
  came = pair.heard->next();
  ASSERT_TRUE(came);
  EXPECT_EQ(came->bytes, "back");
}

TEST(channel_tcp_hub, long_messages_come_whole_and_small_ones_before_them) {
  Worker a("a"), b(Worker::options("b"), false);
  std::shared_ptr<Channel> to;
  std::thread opens([&] { to = a.open(b, std::make_shared<Listening>()); });
  while (b.channels() == 0) b.hub->serve(Deadline::after(10ms));
  opens.join();
  // Nothing is taken before all of them are posted.
  const Body large = pattern(uint64_t{16} << 20, 2), other = pattern(5'000'001, 3);
  const std::string text(300'000, 't');
  to->send({"large", {large, {nullptr, 0}, other}});
  to->send({text, {}});
  to->send({"small", {}});
  while (b.heard()->count() < 3) b.hub->serve(in_time());
  std::map<std::string, size_t> at;
  for (size_t i = 0; i < 3; ++i) {
    auto came = b.heard()->next();
    ASSERT_TRUE(came);
    at[came->bytes.substr(0, 5)] = i;
    if (came->bytes == "large") {
      ASSERT_EQ(came->bodies.size(), 3u);
      EXPECT_TRUE(same(came->bodies[0], large));
      EXPECT_TRUE(same(came->bodies[2], other));
    } else if (came->bytes != "small") {
      EXPECT_EQ(came->bytes, text);
    }
  }
  EXPECT_EQ(at["small"], 0u);
  EXPECT_EQ(at["large"], 2u);
  EXPECT_TRUE(trireme::testing::eventually([&] { return to->unsent() == 0; }));
}

TEST(channel_tcp_hub, memory_is_let_go_when_it_has_been_sent) {
  Pair pair;
  const Body body = pattern(2'000'000, 4);
  pair.to->send({"", {body}});
  ASSERT_TRUE(pair.b.heard()->next());
  EXPECT_TRUE(trireme::testing::eventually([&] { return body.data.use_count() == 1; }));
}

TEST(channel_tcp_hub, of_eight_threads_that_send_at_once_each_keeps_its_order) {
  Pair pair;
  constexpr int kThreads = 8;
  const int each = trireme::testing::kThreadSanitized ? 300 : 1000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        Message message{std::to_string(t) + " " + std::to_string(i), {}};
        if (i % 500 == 0) message.bodies.push_back(pattern(kChunk - 100, 1));
        EXPECT_TRUE(pair.to->send(std::move(message)));
        if (i % 1000 == 1) pair.to->send({"long", {pattern(3 * kChunk, 5)}});
      }
    });
  std::vector<int> next(kThreads);
  for (int n = 0; n < kThreads * each;) {
    auto came = pair.b.heard()->next();
    ASSERT_TRUE(came);
    if (came->bytes == "long") continue;
    const auto space = came->bytes.find(' ');
    const int t = std::stoi(came->bytes.substr(0, space));
    ASSERT_EQ(std::stoi(came->bytes.substr(space)), next[static_cast<size_t>(t)]++);
    ++n;
  }
  for (auto& thread : threads) thread.join();
}

TEST(channel_tcp_hub, two_workers_that_open_channels_to_each_other_at_once_have_two) {
  Worker a(Worker::options("a"), false), b(Worker::options("b"), false);
  // No thread serves before both are open: each lets the other in while it waits.
  std::atomic<int> open{0};
  const auto open_and_serve = [&](Worker& from, Worker& to, std::shared_ptr<Listening> heard) {
    auto channel = from.open(to, std::move(heard));
    for (++open; open < 2;) from.hub->serve(Deadline::after(10ms));
    return channel;
  };
  auto a_heard = std::make_shared<Listening>(), b_heard = std::make_shared<Listening>();
  std::shared_ptr<Channel> from_b;
  std::thread other([&] { from_b = open_and_serve(b, a, b_heard); });
  auto from_a = open_and_serve(a, b, a_heard);
  other.join();
  EXPECT_EQ(a.channels(), 1u);
  EXPECT_EQ(b.channels(), 1u);
  from_a->send({"by a", {}});
  from_b->send({"by b", {}});
  while (b.heard()->count() == 0) b.hub->serve(in_time());
  while (a.heard()->count() == 0) a.hub->serve(in_time());
  EXPECT_EQ(b.heard()->next()->bytes, "by a");
  EXPECT_EQ(a.heard()->next()->bytes, "by b");
}

TEST(channel_tcp_hub, closing_tells_both_ends_why_once) {
  Pair pair;
  pair.b.accepted();
  pair.to->close("we are done");
  EXPECT_EQ(pair.heard->end(), "we are done");
  const auto why = pair.b.heard()->end();
  EXPECT_TRUE(has(why, "worker 'a'") && has(why, "closed the channel: we are done")) << why;
  EXPECT_FALSE(pair.to->send({"late", {}}));
  EXPECT_FALSE(pair.b.accepted()->send({"late", {}}));
  pair.to->close("again");
  EXPECT_EQ(pair.heard->times_closed(), 1);
}

TEST(channel_tcp_hub, both_ends_may_close_at_once_with_much_on_the_way) {
  for (int round = 0; round < 8; ++round) {
    Pair pair;
    auto back = pair.b.accepted();
    pair.to->send({"", {pattern(1 << 20, 6)}});
    back->send({"", {pattern(1 << 20, 7)}});
    std::thread other([&] { back->close("b is done"); });
    pair.to->close("a is done");
    other.join();
    EXPECT_NE(pair.heard->end(), "");
    EXPECT_NE(pair.b.heard()->end(), "");
    EXPECT_EQ(pair.heard->times_closed(), 1);
    EXPECT_EQ(pair.b.heard()->times_closed(), 1);
    EXPECT_EQ(pair.to->unsent(), 0u);
  }
}

TEST(channel_tcp_hub, a_hub_that_is_destroyed_closes_its_channels) {
  Worker b("b");
  auto a = std::make_unique<Worker>("a");
  auto heard = std::make_shared<Listening>();
  auto channel = a->open(b, heard);
  b.accepted();
  a.reset();
  EXPECT_TRUE(has(b.heard()->end(), "worker 'a' has left"));
  EXPECT_FALSE(channel->send({"", {}}));
  EXPECT_EQ(heard->times_closed(), 0);
}

TEST(channel_tcp_hub, an_interrupt_ends_every_wait_and_is_not_lost) {
  Worker a(Worker::options("a"), false);
  std::atomic<int> back{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i)
    waiting.emplace_back([&] {
      EXPECT_EQ(a.hub->serve(in_time()), 0);
      ++back;
    });
  // Whoever is not in it yet is the next to hear it.
  for (; back < 3; std::this_thread::yield()) a.hub->interrupt();
  for (auto& thread : waiting) thread.join();
  a.hub->serve(Deadline::after(0ms));
  a.hub->interrupt();  // nobody is there: the next one hears it
  EXPECT_EQ(a.hub->serve(in_time()), 0);
  const auto start = Clock::now();
  EXPECT_EQ(a.hub->serve(Deadline::after(50ms)), 0);
  EXPECT_GE(Clock::now() - start, 50ms);
}

TEST(channel_tcp_hub, a_hub_that_spins_delivers_as_well) {
  auto options = Worker::options("b");
  options.spin = 100ms;
  Worker a("a"), b(std::move(options));
  auto heard = std::make_shared<Listening>();
  auto to = a.open(b, heard);
  for (int i = 0; i < 100; ++i) {
    to->send({std::to_string(i), {}});
    auto came = b.heard()->next();
    ASSERT_TRUE(came);
    EXPECT_EQ(came->bytes, std::to_string(i));
  }
}

TEST(channel_tcp_hub, a_receiver_may_answer_and_close_and_not_open_or_serve) {
  struct Answers final : Receiver {
    void received(Message message) override {
      if (message.bytes == "again") {
        refused += !trireme::testing::refusal([&] { hub->serve(in_time()); }).empty();
        refused += !trireme::testing::refusal([&] {
                      hub->open(hub->address(), {"x", 1}, std::make_shared<Answers>(), in_time());
                    }).empty();
      }
      if (message.bytes == "close") return channel->close("as you wish");
      channel->send({message.bytes + std::to_string(refused), {}});
    }
    void closed(const std::string&) override { channel.reset(); }
    std::shared_ptr<Channel> channel;
    Hub* hub = nullptr;
    int refused = 0;
  };
  Hub* hub = nullptr;
  auto options = Worker::options("b");
  options.accept = [&](const std::shared_ptr<Channel>& channel) {
    channel->send({"welcome", {}});  // before the other end knows that it is in
    auto out = std::make_shared<Answers>();
    out->channel = channel;
    out->hub = hub;
    return out;
  };
  Worker b(std::move(options), false);
  hub = b.hub.get();
  std::thread serves([&] { b.serve(); });
  {
    Worker a("a");
    auto heard = std::make_shared<Listening>();
    auto to = a.open(b, heard);
    EXPECT_EQ(heard->next()->bytes, "welcome");
    to->send({"again", {}});
    EXPECT_EQ(heard->next()->bytes, "again2");
    to->send({"close", {}});
    EXPECT_TRUE(has(heard->end(), "as you wish"));
  }
  b.stop();
  b.hub->interrupt();
  serves.join();
}

TEST(channel_tcp_hub, who_accepts_a_channel_may_close_it_at_once) {
  auto heard = std::make_shared<Listening>();
  auto options = Worker::options("b");
  options.accept = [&](const std::shared_ptr<Channel>& channel) {
    channel->close("not today");
    return heard;
  };
  Worker a("a"), b(std::move(options));
  auto ours = std::make_shared<Listening>();
  auto to = a.open(b, ours);
  EXPECT_TRUE(has(ours->end(), "not today"));
  EXPECT_EQ(heard->end(), "not today");
}

TEST(channel_tcp_hub, an_address_that_no_peer_finds_is_refused) {
  for (const char* at : {"tcp://0.0.0.0:0", "unix:@a name"}) {
    auto options = Worker::options("a");
    options.at = net::Endpoint::parse(at);
    EXPECT_TRUE(
        has(trireme::testing::refusal([&] { tcp_hub(std::move(options)); }), "name the interface"));
  }
  auto options = Worker::options(std::string(300, 'n'));
  EXPECT_TRUE(has(trireme::testing::refusal([&] { tcp_hub(std::move(options)); }), "at most 256"));
}

TEST(channel_tcp_hub, a_forked_child_may_not_use_it_and_leaves_it_alone) {
  Pair pair;
  using trireme::testing::refused_in_child;
  trireme::testing::ForkedChild child(trireme::testing::ChildEnd::exit_at_once, [&] {
    std::string wrong = refused_in_child("send",
                                         [&] {
                                           pair.to->send({"", {}});
                                         }) +
                        refused_in_child("close", [&] { pair.to->close(""); }) +
                        refused_in_child("serve", [&] { pair.a.hub->serve(in_time()); }) +
                        refused_in_child("open", [&] { pair.a.open(pair.b, pair.heard); });
    pair.a.hub.reset();
    pair.to.reset();
    return wrong;
  });
  EXPECT_EQ(child.ended(), "");
  EXPECT_TRUE(pair.to->send({"still here", {}}));
  EXPECT_EQ(pair.b.heard()->next()->bytes, "still here");
}

TEST(channel_tcp_hub, what_is_no_message_is_refused_and_the_channel_goes_on) {
  Pair pair;
  EXPECT_THROW(pair.to->send({std::string(kMostBytes + 1, 'x'), {}}), UsageError);
  EXPECT_THROW(pair.to->send({"", {{nullptr, 5}}}), UsageError);
  // The most of everything, small and long.
  for (const size_t bytes : {size_t{3}, static_cast<size_t>(kMostBytes)}) {
    EXPECT_TRUE(
        pair.to->send({std::string(bytes, 'x'), std::vector<Body>(kMostBodies, pattern(1, 0))}));
    auto came = pair.b.heard()->next();
    ASSERT_TRUE(came);
    EXPECT_TRUE(came->bytes == std::string(bytes, 'x'));
    ASSERT_EQ(came->bodies.size(), kMostBodies);
    EXPECT_TRUE(same(came->bodies.back(), pattern(1, 0)));
  }
  pair.to->close(std::string(5 << 20, 'w'));
  EXPECT_TRUE(has(pair.b.heard()->end(), "closed the channel: www"));
}

}  // namespace trireme::channel::tcp_hub_test
