// SPDX-License-Identifier: Apache-2.0
// Bodies that their receiver has been lent: whose memory they are, and when it comes back.
#include <gtest/gtest.h>

#include <set>

#include "tests/channel/conformance_processes.h"
#include "tests/channel/local/local_workers.h"
#include "tests/support/forked.h"

namespace trireme::channel {
namespace {

using namespace conformance;

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// Sends a block of empty()'s with `seed` in it and keeps it, against the rules, to see who shares
/// it.
std::shared_ptr<void> give(Channel& channel, uint64_t bytes, uint64_t seed) {
  std::shared_ptr<void> memory = channel.empty(bytes);
  fill(memory.get(), bytes, seed);
  EXPECT_TRUE(channel.send({"", {{memory, bytes}}}));
  return memory;
}

uint64_t first_word(const void* p) { return *static_cast<const volatile uint64_t*>(p); }

TEST(channel_local_lent, a_body_made_by_empty_is_received_in_the_senders_own_memory) {
  Worker a(make_local, "a"), b(make_local, "b");
  Line line(a, b);
  for (const uint64_t bytes : {uint64_t{16384}, 5 * kMiB}) {
    const auto memory = give(*line.channel, bytes, 1);
    ASSERT_TRUE(line.far->has(1));
    const auto got = line.far->take_all();
    EXPECT_NE(got[0].bodies[0].data.get(), memory.get());  // two mappings of it
    *static_cast<volatile uint64_t*>(memory.get()) = 4711;
    EXPECT_EQ(first_word(got[0].bodies[0].data.get()), 4711u) << bytes;
  }
}

TEST(channel_local_lent, a_part_of_such_a_body_travels_without_a_copy_too) {
  Worker a(make_local, "a"), b(make_local, "b");
  Line line(a, b);
  const std::shared_ptr<void> memory = line.channel->empty(4 * kMiB);
  auto* middle = static_cast<unsigned char*>(memory.get()) + kMiB + 64;
  fill(middle, kMiB, 2);
  ASSERT_TRUE(line.channel->send({"", {{std::shared_ptr<void>(memory, middle), kMiB}}}));
  ASSERT_TRUE(line.far->has(1));
  const auto got = line.far->take_all();
  EXPECT_TRUE(is_body(got[0].bodies[0], kMiB, 2));
  *reinterpret_cast<volatile uint64_t*>(middle) = 4711;
  EXPECT_EQ(first_word(got[0].bodies[0].data.get()), 4711u);
}

TEST(channel_local_lent, a_block_is_used_again_when_its_receiver_has_let_it_go_and_not_before) {
  Worker a(make_local, "a"), b(make_local, "b");
  Line line(a, b);
  void* const first = give(*line.channel, 2 * kMiB, 1).get();
  ASSERT_TRUE(line.far->has(1));
  auto held = line.far->take_all();
  const std::shared_ptr<void> second = line.channel->empty(2 * kMiB);
  EXPECT_NE(second.get(), first);
  held.clear();
  EXPECT_EQ(line.channel->empty(2 * kMiB).get(), first);
}

TEST(channel_local_lent, many_bodies_let_go_in_any_order_take_no_more_windows) {
  Worker a(make_local, "a"), b(make_local, "b");
  Line line(a, b);
  std::vector<Message> held;
  uint64_t settled = 0;
  for (uint64_t round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 10; ++i)
      ASSERT_TRUE(line.channel->send({"", {body_of(100000, i), body_of(kMiB, i)}}));
    ASSERT_TRUE(line.far->has(10));
    for (Message& message : line.far->take_all()) {
      ASSERT_TRUE(is_body(message.bodies[1], kMiB, held.size() % 10));
      held.push_back(std::move(message));
    }
    // The even ones first, then the others.
    for (size_t i = 0; i < held.size(); i += 2) held[i].bodies.clear();
    held.clear();
    if (round == 8) settled = mapped_bytes();
  }
  EXPECT_EQ(mapped_bytes(), settled);
}

TEST(channel_local_lent, a_receiver_that_keeps_everything_gets_the_rest_in_memory_of_its_own) {
  const MakeHub make = [](HubSettings settings) {
    return local_hub({.self = settings.self,
                      .accept = std::move(settings.accept),
                      .most_window_bytes = 8 * kMiB});
  };
  Worker a(make, "a"), b(make, "b");
  Line line(a, b);
  const uint64_t before = mapped_bytes();
  for (uint64_t i = 0; i < 20; ++i)
    ASSERT_TRUE(line.channel->send({std::to_string(i), {body_of(3 * kMiB, i)}}));
  ASSERT_TRUE(line.far->has(20));
  for (const Message& message : line.far->messages())
    EXPECT_TRUE(is_body(message.bodies[0], 3 * kMiB, std::stoull(message.bytes)));
  EXPECT_LE(mapped_bytes() - before, 2 * 8 * kMiB);  // at both ends
  const std::shared_ptr<void> plain = line.channel->empty(3 * kMiB);
  ASSERT_NE(plain, nullptr);
  EXPECT_LE(mapped_bytes() - before, 2 * 8 * kMiB);
}

TEST(channel_local_lent, what_a_peer_that_never_reads_costs_has_a_bound) {
  Worker a(make_local, "a"), b(make_local, "b");
  Line line(a, b);
  b.stop();
  const uint64_t before = mapped_bytes();
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(line.channel->send({"", {body_of(16 * kMiB, i)}}));
  EXPECT_TRUE(testing::eventually([&] { return line.channel->unsent() <= 15 * 16 * kMiB; }));
  // It goes on no further: enough is on its way.
  EXPECT_LE(mapped_bytes() - before, 5 * 16 * kMiB);
  EXPECT_GE(line.channel->unsent(), 14 * 16 * kMiB);
  b.start();
  ASSERT_TRUE(line.far->has(20));
}

TEST(channel_local_lent, windows_are_unmapped_when_channel_and_bodies_are_gone) {
  const uint64_t before = mapped_bytes();
  std::vector<Message> held;
  std::shared_ptr<void> made;
  {
    Worker a(make_local, "a"), b(make_local, "b");
    Line line(a, b);
    ASSERT_TRUE(line.channel->send({"", {body_of(3 * kMiB, 1)}}));
    made = line.channel->empty(2 * kMiB);
    ASSERT_TRUE(line.far->has(1));
    held = line.far->take_all();
  }
  EXPECT_GE(mapped_bytes() - before, 5 * kMiB);
  fill(made.get(), 2 * kMiB, 3);
  EXPECT_TRUE(is_body(held[0].bodies[0], 3 * kMiB, 1));
  held.clear(), made.reset();
  EXPECT_EQ(mapped_bytes(), before);
}

TEST(channel_local_lent, what_a_killed_sender_lent_stays_valid) {
  OtherProcess child(make_local, [](Hub& hub, const std::shared_ptr<Channel>& channel, Inbox&) {
    give(*channel, 4 * kMiB, 5);
    channel->send({"", {body_of(4 * kMiB, 6)}});
    while (true) hub.serve(Deadline::after(std::chrono::seconds(1)));
  });
  Worker parent(make_local, "parent");
  child.tell(parent.address());
  const auto [channel, inbox] = only_channel(parent);
  ASSERT_TRUE(inbox->has(2));
  child.kill();
  ASSERT_TRUE(inbox->is_closed());
  EXPECT_NE(inbox->why().find("is gone"), std::string::npos) << inbox->why();
  const auto got = inbox->take_all();
  EXPECT_TRUE(is_body(got[0].bodies[0], 4 * kMiB, 5));
  EXPECT_TRUE(is_body(got[1].bodies[0], 4 * kMiB, 6));
}

TEST(channel_local_lent, a_body_that_a_forked_child_lets_go_is_still_its_parents) {
  Worker a(make_local, "a"), b(make_local, "b");
  Line line(a, b);
  void* const first = give(*line.channel, 2 * kMiB, 1).get();
  ASSERT_TRUE(line.far->has(1));
  auto held = line.far->take_all();
  testing::ForkedChild child(testing::ChildEnd::exit_at_once, [&] {
    held.clear();
    return testing::refused_in_child("send",
                                     [&] {
                                       line.channel->send({"", {}});
                                     }) +
           testing::refused_in_child("empty", [&] { line.channel->empty(1); }) +
           testing::refused_in_child("close", [&] { line.channel->close("no"); }) +
           testing::refused_in_child("serve", [&] { a.hub().serve(soon()); }) +
           testing::refused_in_child("interrupt", [&] { a.hub().interrupt(); }) +
           testing::refused_in_child("open", [&] {
             a.hub().open(b.address(), b.self, std::make_shared<Inbox>(), soon());
           });
  });
  EXPECT_EQ(child.ended(), "");
  EXPECT_NE(line.channel->empty(2 * kMiB).get(), first);
  ASSERT_TRUE(line.channel->send({"the parent goes on", {}}));
  EXPECT_TRUE(line.far->has(1));
  EXPECT_TRUE(is_body(held[0].bodies[0], 2 * kMiB, 1));
}

}  // namespace
}  // namespace trireme::channel
