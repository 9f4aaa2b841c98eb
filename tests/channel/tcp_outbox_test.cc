// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "trireme/base/error.h"
#include "trireme/channel/tcp/inbox.h"
#include "trireme/channel/tcp/layout.h"
#include "trireme/channel/tcp/outbox.h"

namespace trireme::channel::tcp_outbox_test {

using namespace tcp;

namespace {

Body filled(uint64_t bytes, char with) {
  auto text = std::make_shared<std::string>(bytes, with);
  const void* const data = text->data();
  return {std::shared_ptr<const void>(std::move(text), data), bytes};
}
Message named(const std::string& name, uint64_t body = 0) {
  Message out{name, {}};
  if (body) out.bodies.push_back(filled(body, name[0]));
  return out;
}

/// Everything that the outbox has to say now, and as bytes of the wire.
std::string all(Outbox& outbox, std::vector<std::string>* names = nullptr) {
  std::string wire;
  std::optional<net::Seal> seal;
  for (Parcel parcel; outbox.next(&parcel); parcel = {}) {
    if (names) {
      for (const Message& message : parcel.messages) names->push_back(message.bytes);
      if (parcel.of) names->push_back(parcel.of->message.bytes + "+");
      if (parcel.closing) names->push_back("closing");
    }
    Layout layout;
    layout.lay_out(parcel, seal);
    while (!layout.written()) {
      const iovec& piece = *layout.pieces();
      wire.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      layout.wrote(piece.iov_len);
    }
    outbox.left(parcel);
  }
  return wire;
}

}  // namespace

TEST(channel_tcp_outbox, small_messages_keep_their_order_and_go_before_what_is_left_of_long_ones) {
  Outbox outbox;
  outbox.post(named("L", 4 * kChunk));
  outbox.post(named("a"));
  outbox.post(named("b", kChunk - 1));
  std::vector<std::string> names;
  all(outbox, &names);
  // Two chunks may be on their way; the rest waits until the other end has taken some.
  EXPECT_EQ(names, (std::vector<std::string>{"a", "L+", "b", "L+"}));
  outbox.peer_took(kChunk);
  outbox.post(named("c"));
  names.clear();
  all(outbox, &names);
  EXPECT_EQ(names, (std::vector<std::string>{"c", "L+"}));
}

TEST(channel_tcp_outbox, long_messages_share_the_way_and_a_short_one_does_not_wait_for_a_long_one) {
  Outbox outbox;
  outbox.post(named("L", 100 * kChunk));
  outbox.post(named("M", kChunk));  // one byte more than small
  std::vector<std::string> names;
  all(outbox, &names);
  outbox.peer_took(kMostOnTheWay);
  all(outbox, &names);
  EXPECT_EQ(names, (std::vector<std::string>{"L+", "M+", "L+", "M+"}));
}

TEST(channel_tcp_outbox, what_has_not_left_is_counted_to_the_byte) {
  Outbox outbox;
  outbox.post(named("abc", 10));
  outbox.post(named("L", 3 * kChunk));
  EXPECT_EQ(outbox.unsent(), 3 + 10 + 1 + 3 * kChunk);
  all(outbox);
  EXPECT_EQ(outbox.unsent(), kChunk + 1);
  outbox.peer_took(kMostOnTheWay);
  all(outbox);
  EXPECT_EQ(outbox.unsent(), 0u);
}

TEST(channel_tcp_outbox, a_peer_cannot_have_taken_what_was_not_sent_or_less_than_before) {
  Outbox outbox;
  EXPECT_THROW(outbox.peer_took(1), Corrupt);
  outbox.post(named("L", 2 * kChunk));
  all(outbox);
  outbox.peer_took(kChunk);
  EXPECT_THROW(outbox.peer_took(kChunk - 1), Corrupt);
  EXPECT_THROW(outbox.peer_took(kMostOnTheWay + 1), Corrupt);
}

TEST(channel_tcp_outbox, once_closed_it_says_why_and_keeps_no_memory) {
  Outbox outbox;
  const Body body = filled(2 * kChunk, 'x');
  outbox.post({"L", {body}});
  outbox.post({"a", {}});
  outbox.close("enough");
  outbox.close("twice");
  std::vector<std::string> names;
  all(outbox, &names);
  EXPECT_EQ(names, std::vector<std::string>{"closing"});
  EXPECT_EQ(outbox.unsent(), 0u);
  EXPECT_EQ(body.data.use_count(), 1);
}

// Whatever is posted comes out of an inbox as it was, small ones in their order.
TEST(channel_tcp_outbox, what_goes_in_comes_out_whatever_the_sizes) {
  std::mt19937_64 random(7);
  const uint64_t sizes[] = {0,      1,          63,         kChunk - 40, kChunk - 1,
                            kChunk, kChunk + 1, 2 * kChunk, 5 << 20};
  for (int round = 0; round < 8; ++round) {
    Outbox outbox;
    Inbox inbox(std::nullopt);
    std::vector<Message> posted;
    for (int i = 0; i < 8; ++i) {
      Message message{
          std::to_string(i) + std::string(random() % 3 ? 0 : random() % (kChunk * 2), 'b'), {}};
      for (int n = random() % 4; n > 0; --n)
        message.bodies.push_back(
            filled(sizes[random() % std::size(sizes)], static_cast<char>('a' + random() % 26)));
      posted.push_back(message);
      outbox.post(message);
    }
    std::vector<bool> come(posted.size());
    int last_small = -1;
    while (true) {
      const std::string wire = all(outbox);
      if (wire.empty()) break;
      for (size_t at = 0; at < wire.size();) {
        const auto room = inbox.room();
        size_t n = std::min({room.bytes(), wire.size() - at, 1 + random() % (size_t{1} << 19)});
        const size_t first = std::min(n, room.parts[0].iov_len);
        std::memcpy(room.parts[0].iov_base, wire.data() + at, first);
        if (n > first) std::memcpy(room.parts[1].iov_base, wire.data() + at + first, n - first);
        inbox.came(n);
        at += n;
        while (auto news = inbox.next()) {
          if (news->we_took) outbox.peer_took(*news->we_took);
          if (!news->message) continue;
          const int i = news->message->bytes[0] - '0';
          const Message& wanted = posted[static_cast<size_t>(i)];
          ASSERT_EQ(news->message->bytes, wanted.bytes);
          ASSERT_EQ(news->message->bodies.size(), wanted.bodies.size());
          for (size_t b = 0; b < wanted.bodies.size(); ++b) {
            ASSERT_EQ(news->message->bodies[b].bytes, wanted.bodies[b].bytes);
            ASSERT_EQ(std::memcmp(news->message->bodies[b].data.get(), wanted.bodies[b].data.get(),
                                  wanted.bodies[b].bytes),
                      0);
          }
          ASSERT_FALSE(come[static_cast<size_t>(i)]);
          come[static_cast<size_t>(i)] = true;
          if (sizes_of(wanted).total() <= kChunk) {
            ASSERT_GT(i, last_small);
            last_small = i;
          }
        }
      }
    }
    EXPECT_EQ(std::count(come.begin(), come.end(), true), 8) << "round " << round;
  }
}

TEST(channel_tcp_outbox, a_message_beyond_the_limits_is_refused) {
  const Body small = filled(1, 'x');
  EXPECT_THROW(check_message({std::string(kMostBytes + 1, 'x'), {}}), UsageError);
  EXPECT_THROW(check_message({"", std::vector<Body>(kMostBodies + 1, small)}), UsageError);
  EXPECT_THROW(check_message({"", {{small.data, kMostBodyBytes + 1}}}), UsageError);
  EXPECT_THROW(check_message({"", {{small.data, kMostBodyBytes}, small}}), UsageError);
  EXPECT_THROW(check_message({"", {{small.data, ~uint64_t{0}}, {small.data, 2}}}), UsageError);
  EXPECT_THROW(check_message({"", {{nullptr, 1}}}), UsageError);
  EXPECT_NO_THROW(check_message({"", {{nullptr, 0}, small}}));
}

}  // namespace trireme::channel::tcp_outbox_test
