// SPDX-License-Identifier: Apache-2.0
// How workers of one host meet, and what a careless operator or program does to that.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/channel/local/local_workers.h"
#include "tests/support/file_log.h"
#include "tests/support/processes.h"

namespace trireme::channel {
namespace {

using namespace conformance;

TEST(channel_local_meet, two_that_open_at_once_meet_though_nobody_serves) {
  const auto alone = [](const char* name, std::shared_ptr<Inbox> inbox) {
    return local_hub({.self = {name, 7}, .accept = [inbox](const auto&) { return inbox; }});
  };
  const auto at_a = std::make_shared<Inbox>(), at_b = std::make_shared<Inbox>();
  const auto a = alone("a", at_a), b = alone("b", at_b);
  std::shared_ptr<Channel> there, back;
  std::atomic<int> open{0};
  // Who is done first serves, as whoever goes on to wait for an answer would.
  const auto open_and_serve = [&](Hub& from, Hub& to, const Peer& peer) {
    auto channel = from.open(to.address(), peer, std::make_shared<Inbox>(), soon());
    for (++open; open < 2;) from.serve(Deadline::after(std::chrono::milliseconds(1)));
    return channel;
  };
  std::thread other([&] { back = open_and_serve(*b, *a, {"a", 7}); });
  there = open_and_serve(*a, *b, {"b", 7});
  other.join();
  ASSERT_TRUE(there->send({"a's", {}}) && back->send({"b's", {}}));
  EXPECT_TRUE(testing::eventually([&] {
    a->serve(Deadline::after(std::chrono::milliseconds(1)));
    b->serve(Deadline::after(std::chrono::milliseconds(1)));
    return at_a->messages().size() == 1 && at_b->messages().size() == 1;
  }));
}

TEST(channel_local_meet, one_thread_opens_a_channel_to_its_own_worker) {
  const auto inbox = std::make_shared<Inbox>();
  const auto hub = local_hub({.self = {"a", 7}, .accept = [&](const auto&) { return inbox; }});
  const auto channel = hub->open(hub->address(), {"a", 7}, std::make_shared<Inbox>(), soon());
  ASSERT_TRUE(channel->send({"to myself", {body_of(40 << 20, 1)}}));
  EXPECT_TRUE(testing::eventually([&] {
    hub->serve(Deadline::after(std::chrono::milliseconds(1)));
    return inbox->messages().size() == 1;
  }));
  EXPECT_TRUE(is_body(inbox->messages()[0].bodies[0], 40 << 20, 1));
}

// Without the doorbell each of them would look within a tenth of a second, at an even chance for
// any moment of it.
TEST(channel_local_meet, who_sleeps_hears_a_knock_at_once) {
  constexpr int kSleepers = 8, kSoonEnough = 5;
  std::vector<std::unique_ptr<Worker>> sleepers;
  for (int i = 0; i < kSleepers; ++i)
    sleepers.push_back(std::make_unique<Worker>(make_local, "b" + std::to_string(i)));
  const auto a = local_hub({.self = {"a", 7}, .accept = {}});
  // The second in which hubs look more often, since others join then, passes.
  const auto later = Deadline::after(std::chrono::milliseconds(1300));
  while (!later.expired()) a->serve(later);
  int at_once = 0;
  for (const auto& sleeper : sleepers) {
    const auto begin = Clock::now();
    const auto channel =
        a->open(sleeper->address(), sleeper->self, std::make_shared<Inbox>(), soon());
    at_once += Clock::now() - begin < std::chrono::milliseconds(20);
  }
  EXPECT_GE(at_once, kSoonEnough);
}

TEST(channel_local_meet, a_receiver_that_would_wait_for_a_peer_is_refused) {
  Worker a(make_local, "a"), b(make_local, "b");
  std::mutex mutex;
  std::vector<std::string> refused;
  b.on_message = [&](Channel& channel, Message) {
    const auto opened = kind_and_text(
        [&] { b.hub().open(a.address(), a.self, std::make_shared<Inbox>(), soon()); });
    const auto served = kind_and_text([&] { b.hub().serve(soon()); });
    std::lock_guard lock(mutex);
    refused = {opened.first, opened.second, served.first, served.second};
    channel.send({"tried", {}});
  };
  Line line(a, b);
  ASSERT_TRUE(line.channel->send({"go", {}}));
  ASSERT_TRUE(line.near->has(1));
  std::lock_guard lock(mutex);
  EXPECT_EQ(refused.at(0), "UsageError");
  EXPECT_EQ(refused.at(2), "UsageError");
  EXPECT_NE(refused.at(1).find("open() waits for a peer"), std::string::npos) << refused.at(1);
}

TEST(channel_local_meet, options_and_addresses_that_cannot_be_are_refused) {
  EXPECT_THROW(local_hub({.self = {"", 1}}), UsageError);
  EXPECT_THROW(local_hub({.self = {std::string(241, 'n'), 1}}), UsageError);
  EXPECT_THROW(local_hub({.self = {"a", 1}, .spin = std::chrono::seconds(-1)}), UsageError);
  EXPECT_THROW(local_hub({.self = {"a", 1}, .most_window_bytes = 1 << 20}), UsageError);
  Worker a(make_local, "a"), b(make_local, "b");
  const auto open = [&](const std::string& address) {
    return kind_and_text([&] {
      a.hub().open(address, {"b", 7}, std::make_shared<Inbox>(), soon());
    });
  };
  for (const std::string& address :
       {std::string(), std::string("local:"), std::string("tcp://host:1"), b.address() + "x",
        b.address().substr(1), std::string(104, ':')})
    EXPECT_EQ(open(address).first, "UsageError") << address;
  EXPECT_THROW(a.hub().open(b.address(), b.self, nullptr, soon()), UsageError);
}

TEST(channel_local_meet, an_address_with_another_word_opens_nothing) {
  Worker a(make_local, "a"), b(make_local, "b");
  const std::string address = b.address();
  std::string knock = address, answer = address;
  knock[6 + 33] = knock[6 + 33] == '0' ? '1' : '0';
  answer[6 + 66] = answer[6 + 66] == '0' ? '1' : '0';
  const auto open = [&](const std::string& at) {
    return kind_and_text([&] { a.hub().open(at, b.self, std::make_shared<Inbox>(), soon()); });
  };
  EXPECT_EQ(open(knock).first, "UsageError");
  EXPECT_TRUE(b.accepted().empty());
  EXPECT_EQ(open(answer).first, "UsageError");  // b would let us in, and is not who published it
  EXPECT_TRUE(testing::eventually([&] {
    for (const auto& one : b.accepted())
      if (one.inbox->closings() == 0) return false;
    return true;
  }));
}

TEST(channel_local_meet, opening_and_closing_again_and_again_leaves_no_descriptor_and_no_memory) {
  Worker a(make_local, "a"), b(make_local, "b");
  { Line first(a, b); }
  const auto settle = [&] {
    for (const auto& one : b.accepted()) one.channel->close("settled");
    for (const auto& one : b.accepted()) ASSERT_TRUE(one.inbox->is_closed());
  };
  settle();
  ASSERT_TRUE(testing::eventually([&] { return testing::open_descriptors().size() < 1000; }));
  const size_t before = testing::open_descriptors().size();
  for (int i = 0; i < 10; ++i) {
    Line line(a, b);
    ASSERT_TRUE(line.channel->send({"", {body_of(1 << 20, 1)}}));
    ASSERT_TRUE(line.far->has(1));
    line.far->take_all();
    line.channel->close("done");
    ASSERT_TRUE(line.far->is_closed() && line.near->is_closed());
  }
  settle();
  EXPECT_LE(testing::open_descriptors().size(), before);
}

TEST(channel_local_meet, a_worker_that_may_open_no_more_files_says_so) {
  EXPECT_EQ(testing::end_of_child("",
                                  [] {
                                    const rlimit few{24, 24};
                                    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return;
                                    std::vector<std::unique_ptr<Hub>> hubs;
                                    while (true) hubs.push_back(local_hub({.self = {"a", 1}}));
                                  })
                .rfind("ResourceError: ", 0),
            0u);
}

}  // namespace
}  // namespace trireme::channel
