// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/channel/workers.h"
#include "trireme/channel/channel.h"

// What every Hub must do. A test of one says how it is made:
//
//   TRIREME_CHANNEL_CONFORMANCE(channel_local_conformance, make_hub)
//
// and has all of these facts as tests of its own. Those with processes are in
// conformance_processes.h.
namespace trireme::channel::conformance {

inline void messages_come_whole_and_in_order(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  std::vector<uint64_t> sizes{0, 1, 7, 8, 9, 1000, 65511, 65512, 65513, 65528, 65536, 100000};
  for (int i = 0; i < 300; ++i) sizes.push_back(static_cast<uint64_t>(i) % 40);
  sizes.push_back(kChunk);
  for (size_t i = 0; i < sizes.size(); ++i)
    ASSERT_TRUE(line.channel->send({pattern(sizes[i], i), {}}));
  ASSERT_TRUE(line.far->has(sizes.size()));
  const auto got = line.far->messages();
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(got[i].bytes, pattern(sizes[i], i)) << i;
  EXPECT_EQ(line.channel->unsent(), 0u);
}

inline void both_ends_send_on_one_channel(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  ASSERT_TRUE(line.channel->send({"there", {}}));
  ASSERT_TRUE(line.far_channel->send({"and back", {}}));
  ASSERT_TRUE(line.far->has(1) && line.near->has(1));
  EXPECT_EQ(line.far->messages()[0].bytes, "there");
  EXPECT_EQ(line.near->messages()[0].bytes, "and back");
  EXPECT_EQ(line.channel->peer().name, "b");
  EXPECT_EQ(line.far_channel->peer().name, "a");
  EXPECT_EQ(line.far_channel->peer().generation, 7u);
}

inline void bodies_of_every_size_come_whole(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  const std::vector<uint64_t> sizes{0,     1,     100,   4095,    16383,   16384, 16385,
                                    65536, 65537, 99999, 1 << 20, 3 << 20, 5,     0};
  Message message{"with bodies", {}};
  for (size_t i = 0; i < sizes.size(); ++i) message.bodies.push_back(body_of(sizes[i], i));
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(line.channel->send(message));
  for (const uint64_t size : sizes) ASSERT_TRUE(line.channel->send({"one", {body_of(size, 1)}}));
  ASSERT_TRUE(line.far->has(3 + sizes.size()));
  for (const Message& got : line.far->messages()) {
    if (got.bytes == "one") {
      ASSERT_EQ(got.bodies.size(), 1u);
      EXPECT_TRUE(is_body(got.bodies[0], got.bodies[0].bytes, 1));
      continue;
    }
    ASSERT_EQ(got.bodies.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_TRUE(is_body(got.bodies[i], sizes[i], i)) << i;
  }
}

inline void the_largest_bytes_and_the_most_bodies_come_whole(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  Message many{"", {}};
  for (uint64_t i = 0; i < kMostBodies; ++i) many.bodies.push_back(body_of(i % 4, i));
  ASSERT_TRUE(line.channel->send(many));
  ASSERT_TRUE(line.channel->send({pattern(kMostBytes, 3), {}}));
  ASSERT_TRUE(line.far->has(2));
  auto got = line.far->messages();
  if (got[0].bodies.empty()) std::swap(got[0], got[1]);
  ASSERT_EQ(got[0].bodies.size(), kMostBodies);
  for (uint64_t i = 0; i < kMostBodies; ++i) ASSERT_TRUE(is_body(got[0].bodies[i], i % 4, i)) << i;
  EXPECT_TRUE(got[1].bytes == pattern(kMostBytes, 3));
}

inline void a_short_message_overtakes_a_long_one(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  constexpr uint64_t kLarge = uint64_t{24} << 20;
  a.stop();  // so that the long one is not through before the others are posted
  ASSERT_TRUE(line.channel->send({"long", {body_of(kLarge, 1)}}));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(line.channel->send({std::to_string(i), {}}));
  a.start();
  ASSERT_TRUE(line.far->has(11));
  const auto got = line.far->messages();
  EXPECT_EQ(got[0].bytes, "0");
  int next = 0;
  for (const Message& message : got)
    if (message.bytes == "long") {
      EXPECT_TRUE(is_body(message.bodies[0], kLarge, 1));
    } else {
      EXPECT_EQ(message.bytes, std::to_string(next++));
    }
}

inline void eight_threads_send_at_once_and_each_keeps_its_order(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  constexpr int kThreads = 8, kEach = 400;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Message message{std::to_string(t) + " " + std::to_string(i) + " ", {}};
        message.bytes += pattern(static_cast<uint64_t>(i * 7 % 2000), static_cast<uint64_t>(i));
        if (i % 50 == 0) message.bodies.push_back(body_of(20000, static_cast<uint64_t>(i)));
        EXPECT_TRUE(line.channel->send(std::move(message)));
      }
    });
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(line.far->has(kThreads * kEach));
  std::vector<int> next(kThreads, 0);
  for (const Message& got : line.far->messages()) {
    const int t = std::stoi(got.bytes), i = std::stoi(got.bytes.substr(got.bytes.find(' ')));
    ASSERT_EQ(next[static_cast<size_t>(t)]++, i) << "of thread " << t;
    const std::string text = pattern(static_cast<uint64_t>(i * 7 % 2000), static_cast<uint64_t>(i));
    ASSERT_TRUE(got.bytes.ends_with(" " + text));
    if (i % 50 == 0) {
      ASSERT_TRUE(is_body(got.bodies.at(0), 20000, static_cast<uint64_t>(i)));
    }
  }
}

inline void closing_is_heard_once_at_both_ends_behind_what_was_sent(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(line.channel->send({std::to_string(i), {}}));
  ASSERT_TRUE(line.far->has(20));
  line.channel->close("the work is done");
  line.channel->close("again");
  ASSERT_TRUE(line.near->is_closed() && line.far->is_closed());
  EXPECT_EQ(line.near->why(), "the work is done");
  EXPECT_NE(line.far->why().find("the work is done"), std::string::npos) << line.far->why();
  EXPECT_FALSE(line.channel->send({"late", {}}));
  EXPECT_FALSE(line.far_channel->send({"late", {body_of(1 << 20, 1)}}));
  EXPECT_EQ(line.near->closings() + line.far->closings(), 2);
  EXPECT_EQ(line.far->messages().size(), 20u);
  EXPECT_NE(line.channel->empty(1 << 20), nullptr);
}

inline void closing_from_both_ends_at_once_ends_it_for_both(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  for (int round = 0; round < 5; ++round) {
    Line line(a, b);
    std::thread other([&] { line.far_channel->close("b has enough"); });
    line.channel->close("a has enough");
    other.join();
    ASSERT_TRUE(line.near->is_closed() && line.far->is_closed());
    EXPECT_EQ(line.near->closings() + line.far->closings(), 2);
  }
}

inline void both_open_at_once_and_each_sends_on_its_own(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  std::unique_ptr<Line> there, back;
  std::thread other([&] { back = std::make_unique<Line>(b, a); });
  there = std::make_unique<Line>(a, b);
  other.join();
  ASSERT_TRUE(there->channel->send({"a's", {}}) && back->channel->send({"b's", {}}));
  ASSERT_TRUE(there->far->has(1) && back->far->has(1));
  EXPECT_EQ(there->far->messages()[0].bytes, "a's");
  EXPECT_EQ(back->far->messages()[0].bytes, "b's");
  EXPECT_TRUE(there->near->messages().empty() && back->near->messages().empty());
}

inline void a_receiver_may_answer_and_close(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  b.on_message = [](Channel& channel, Message message) {
    if (message.bytes == "enough") return channel.close("it said enough");
    channel.send(std::move(message));
  };
  Line line(a, b);
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(line.channel->send({std::to_string(i), {body_of(30000, 5)}}));
  ASSERT_TRUE(line.near->has(50));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(line.near->messages()[static_cast<size_t>(i)].bytes, std::to_string(i));
    EXPECT_TRUE(is_body(line.near->messages()[static_cast<size_t>(i)].bodies.at(0), 30000, 5));
  }
  ASSERT_TRUE(line.channel->send({"enough", {}}));
  ASSERT_TRUE(line.near->is_closed());
  EXPECT_NE(line.near->why().find("it said enough"), std::string::npos);
}

inline void bodies_made_by_empty_come_whole_again_and_again(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  for (uint64_t round = 0; round < 40; ++round) {
    const uint64_t bytes = (round % 5 + 1) * 300000;
    std::shared_ptr<void> memory = line.channel->empty(bytes);
    ASSERT_NE(memory, nullptr);
    fill(memory.get(), bytes, round);
    ASSERT_TRUE(line.channel->send({"", {{std::move(memory), bytes}}}));
    ASSERT_TRUE(line.far->has(1));
    const auto got = line.far->take_all();
    ASSERT_TRUE(is_body(got[0].bodies.at(0), bytes, round)) << round;
  }
}

inline void bodies_outlive_the_channel(const MakeHub& make) {
  std::vector<Message> held;
  {
    Worker a(make, "a"), b(make, "b");
    Line line(a, b);
    ASSERT_TRUE(
        line.channel->send({"", {body_of(100, 1), body_of(50000, 2), body_of(3 << 20, 3)}}));
    std::shared_ptr<void> made = line.channel->empty(1 << 20);
    fill(made.get(), 1 << 20, 4);
    ASSERT_TRUE(line.channel->send({"", {{made, 1 << 20}}}));
    ASSERT_TRUE(line.far->has(2));
    held = line.far->take_all();
    line.channel->close("done");
    ASSERT_TRUE(line.far->is_closed());
  }
  for (const Message& message : held)
    for (size_t i = 0; i < message.bodies.size(); ++i)
      EXPECT_TRUE(is_body(message.bodies[i], message.bodies[i].bytes,
                          message.bodies.size() == 1 ? 4 : i + 1));
}

inline void a_peer_that_never_reads_blocks_nobody(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  b.stop();
  const auto begin = Clock::now();
  uint64_t posted = 0;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(line.channel->send({pattern(1000, 1), {}}));
    posted += 1000;
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(line.channel->send({"", {body_of(1 << 20, 2)}}));
    posted += 1 << 20;
  }
  EXPECT_LT(seconds_since(begin), 10.0);
  EXPECT_GT(line.channel->unsent(), posted / 4);
  EXPECT_LE(line.channel->unsent(), posted);
  b.start();
  ASSERT_TRUE(line.far->has(10020));
  EXPECT_TRUE(testing::eventually([&] { return line.channel->unsent() == 0; }));
}

inline void what_is_beyond_the_limits_is_refused_and_the_channel_goes_on(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  EXPECT_THROW(line.channel->send({std::string(kMostBytes + 1, 'x'), {}}), UsageError);
  EXPECT_THROW(line.channel->send({"", std::vector<Body>(kMostBodies + 1)}), UsageError);
  const Body one = body_of(1, 1);
  EXPECT_THROW(line.channel->send({"", {{one.data, kMostBodyBytes + 1}}}), UsageError);
  EXPECT_THROW(line.channel->send({"", {{nullptr, 1}}}), UsageError);
  EXPECT_EQ(line.channel->unsent(), 0u);
  ASSERT_TRUE(line.channel->send({"still here", {}}));
  ASSERT_TRUE(line.far->has(1));
  EXPECT_EQ(line.far->messages()[0].bytes, "still here");
}

inline void serve_ends_at_its_deadline_at_an_interruption_and_waits_for_its_turn(
    const MakeHub& make) {
  Worker a(make, "a");
  a.stop();
  Hub& hub = a.hub();
  // An interruption that met nobody is for the next one who comes.
  hub.interrupt();
  EXPECT_EQ(hub.serve(Deadline::never()), 0);
  const auto begin = Clock::now();
  EXPECT_EQ(hub.serve(Deadline::after(std::chrono::milliseconds(30))), 0);
  EXPECT_GE(seconds_since(begin), 0.029);
  std::atomic<bool> ended{false};
  std::thread first([&] {
    EXPECT_EQ(hub.serve(Deadline::never()), 0);
    ended = true;
  });
  // Whoever of the two has the turn: this one ends at its deadline.
  EXPECT_EQ(hub.serve(Deadline::after(std::chrono::milliseconds(30))), 0);
  EXPECT_TRUE(testing::eventually([&] {
    if (!ended) hub.interrupt();
    return ended.load();
  }));
  first.join();
}

inline void who_is_not_accepted_is_told(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b");
  b.accepts = false;
  EXPECT_THROW(a.hub().open(b.address(), {"b", 7}, std::make_shared<Inbox>(), soon()), PeerLost);
  b.accepts = true;
  Line line(a, b);
  EXPECT_TRUE(line.channel->send({"now", {}}));
  EXPECT_TRUE(line.far->has(1));
}

inline void another_generation_and_another_name_are_a_mismatch(const MakeHub& make) {
  Worker a(make, "a"), b(make, "b"), old(make, "old", 6);
  const auto open = [&](Worker& from, Peer expected) {
    return kind_and_text(
        [&] { from.hub().open(b.address(), expected, std::make_shared<Inbox>(), soon()); });
  };
  const auto stale = open(old, {"b", 6});
  EXPECT_EQ(stale.first, "Mismatch") << stale.second;
  EXPECT_NE(stale.second.find("6"), std::string::npos) << stale.second;
  EXPECT_NE(stale.second.find("7"), std::string::npos) << stale.second;
  const auto other = open(a, {"c", 7});
  EXPECT_EQ(other.first, "Mismatch") << other.second;
  EXPECT_NE(other.second.find("'b'"), std::string::npos) << other.second;
  EXPECT_NE(other.second.find("'c'"), std::string::npos) << other.second;
}

inline void nobody_there_is_a_lost_peer_and_nobody_serving_a_timeout(const MakeHub& make) {
  Worker a(make, "a");
  std::string address;
  {
    Worker gone(make, "gone");
    address = gone.address();
  }
  EXPECT_THROW(a.hub().open(address, {"gone", 7}, std::make_shared<Inbox>(), soon()), PeerLost);
  Worker busy(make, "busy");
  busy.stop();
  const auto begin = Clock::now();
  EXPECT_THROW(a.hub().open(busy.address(), {"busy", 7}, std::make_shared<Inbox>(),
                            Deadline::after(std::chrono::milliseconds(200))),
               Timeout);
  EXPECT_GE(seconds_since(begin), 0.19);
}

inline void what_is_sent_while_a_peer_is_let_in_comes(const MakeHub& make) {
  Worker a(make, "a");
  std::shared_ptr<Channel> back;
  const auto hub = make({{"b", 7}, [&](const std::shared_ptr<Channel>& channel) {
                           back = channel;
                           for (uint64_t i = 0; i < 3; ++i) {
                             std::shared_ptr<void> memory = channel->empty(1 << 20);
                             fill(memory.get(), 1 << 20, i);
                             EXPECT_TRUE(channel->send({"", {{std::move(memory), 1 << 20}}}));
                           }
                           EXPECT_TRUE(channel->send({"", {body_of(100'000, 3)}}));
                           return std::make_shared<Inbox>();
                         }});
  std::atomic<bool> over{false};
  std::thread serving([&] {
    while (!over) hub->serve(Deadline::never());
  });
  const auto inbox = std::make_shared<Inbox>();
  const auto channel = a.hub().open(hub->address(), {"b", 7}, inbox, soon());
  EXPECT_TRUE(inbox->has(4)) << inbox->why();
  std::vector<bool> came(4);
  for (const Message& message : inbox->messages())
    for (uint64_t i = 0; i < 4; ++i)
      if (is_body(message.bodies.at(0), i < 3 ? 1 << 20 : 100'000, i)) came[i] = true;
  EXPECT_EQ(came, std::vector<bool>(4, true));
  over = true;
  hub->interrupt();
  serving.join();
  back.reset();
}

inline void answers_come_one_by_one_while_both_spin(const MakeHub& make) {
  Worker a(make, "a", 7, std::chrono::microseconds(200)),
      b(make, "b", 7, std::chrono::microseconds(200));
  b.on_message = [](Channel& channel, Message message) { channel.send(std::move(message)); };
  Line line(a, b);
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(line.channel->send({std::to_string(i), {}}));
    ASSERT_TRUE(line.near->has(1));
    ASSERT_EQ(line.near->take_all()[0].bytes, std::to_string(i));
  }
}

}  // namespace trireme::channel::conformance

#define TRIREME_CHANNEL_FACT(suite, make, fact) \
  TEST(suite, fact) { trireme::channel::conformance::fact(make); }
#define TRIREME_CHANNEL_CONFORMANCE(suite, make)                                                  \
  TRIREME_CHANNEL_FACT(suite, make, messages_come_whole_and_in_order)                             \
  TRIREME_CHANNEL_FACT(suite, make, both_ends_send_on_one_channel)                                \
  TRIREME_CHANNEL_FACT(suite, make, bodies_of_every_size_come_whole)                              \
  TRIREME_CHANNEL_FACT(suite, make, the_largest_bytes_and_the_most_bodies_come_whole)             \
  TRIREME_CHANNEL_FACT(suite, make, a_short_message_overtakes_a_long_one)                         \
  TRIREME_CHANNEL_FACT(suite, make, eight_threads_send_at_once_and_each_keeps_its_order)          \
  TRIREME_CHANNEL_FACT(suite, make, closing_is_heard_once_at_both_ends_behind_what_was_sent)      \
  TRIREME_CHANNEL_FACT(suite, make, closing_from_both_ends_at_once_ends_it_for_both)              \
  TRIREME_CHANNEL_FACT(suite, make, both_open_at_once_and_each_sends_on_its_own)                  \
  TRIREME_CHANNEL_FACT(suite, make, a_receiver_may_answer_and_close)                              \
  TRIREME_CHANNEL_FACT(suite, make, bodies_made_by_empty_come_whole_again_and_again)              \
  TRIREME_CHANNEL_FACT(suite, make, bodies_outlive_the_channel)                                   \
  TRIREME_CHANNEL_FACT(suite, make, a_peer_that_never_reads_blocks_nobody)                        \
  TRIREME_CHANNEL_FACT(suite, make, what_is_beyond_the_limits_is_refused_and_the_channel_goes_on) \
  TRIREME_CHANNEL_FACT(suite, make,                                                               \
                       serve_ends_at_its_deadline_at_an_interruption_and_waits_for_its_turn)      \
  TRIREME_CHANNEL_FACT(suite, make, who_is_not_accepted_is_told)                                  \
  TRIREME_CHANNEL_FACT(suite, make, another_generation_and_another_name_are_a_mismatch)           \
  TRIREME_CHANNEL_FACT(suite, make, nobody_there_is_a_lost_peer_and_nobody_serving_a_timeout)     \
  TRIREME_CHANNEL_FACT(suite, make, what_is_sent_while_a_peer_is_let_in_comes)                    \
  TRIREME_CHANNEL_FACT(suite, make, answers_come_one_by_one_while_both_spin)
