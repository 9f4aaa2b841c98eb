// SPDX-License-Identifier: Apache-2.0
// What a peer may say, and what it costs when he says something else.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/memory_limit.h"
#include "tests/support/sanitized.h"
#include "trireme/base/error.h"
#include "trireme/channel/tcp/inbox.h"
#include "trireme/net/frame.h"

namespace trireme::channel::tcp_inbox_test {

using namespace tcp;

namespace {

std::string frame(ChannelFrame type, const std::string& payload) {
  return net::encode_frame(static_cast<uint16_t>(type), payload);
}
net::Writer sizes(uint32_t bytes, const std::vector<uint64_t>& bodies) {
  net::Writer out;
  out.u32(bytes).u32(static_cast<uint32_t>(bodies.size()));
  for (const uint64_t size : bodies) out.u64(size);
  return out;
}

/// Gives the bytes to the inbox, at most `step` at a time, and counts what they said.
size_t feed(Inbox& inbox, std::string_view bytes, size_t step = SIZE_MAX) {
  size_t news = 0;
  while (!bytes.empty()) {
    const auto room = inbox.room();
    const size_t n = std::min({room.bytes(), bytes.size(), step});
    const size_t first = std::min(n, room.parts[0].iov_len);
    std::memcpy(room.parts[0].iov_base, bytes.data(), first);
    if (n > first) std::memcpy(room.parts[1].iov_base, bytes.data() + first, n - first);
    inbox.came(n);
    bytes.remove_prefix(n);
    while (inbox.next()) ++news;
  }
  return news;
}
void refused(const std::string& bytes) {
  Inbox inbox(std::nullopt);
  EXPECT_THROW(feed(inbox, bytes), Corrupt);
  Inbox slow(std::nullopt);
  EXPECT_THROW(feed(slow, bytes, 1), Corrupt);
}

}  // namespace

TEST(channel_tcp_inbox, what_no_peer_says_is_refused) {
  const std::string head_0 =
      frame(ChannelFrame::head, std::string(1, '\0') + sizes(0, {2 * kChunk}).bytes());
  refused(std::string(100, 'x'));                                       // no frame
  refused(frame(static_cast<ChannelFrame>(16), ""));                    // the store's
  refused(frame(ChannelFrame::greeting, ""));                           // not twice
  refused(frame(ChannelFrame::chunk, "\1abc"));                         // of nothing
  refused(frame(ChannelFrame::chunk, std::string(1, '\xff') + "abc"));  // nowhere
  refused(head_0 + head_0);                                             // in a taken place
  refused(head_0 + frame(ChannelFrame::chunk, std::string(1, '\0')));   // without a byte
  refused(frame(ChannelFrame::head, std::string(1, '\4') + sizes(0, {2 * kChunk}).bytes()));
  refused(frame(ChannelFrame::head, std::string(1, '\0') + sizes(3, {}).bytes()));  // small
  refused(frame(ChannelFrame::message, sizes(3, {}).raw("ab").bytes()));
  refused(frame(ChannelFrame::message, sizes(3, {}).raw("abcd").bytes()));
  refused(frame(ChannelFrame::taken, "1234567"));
}

TEST(channel_tcp_inbox, lengths_of_2_to_the_63_are_refused) {
  for (const uint64_t length : {kMostBodyBytes + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    refused(frame(ChannelFrame::message, sizes(0, {length}).bytes()));
    refused(frame(ChannelFrame::head, std::string(1, '\0') + sizes(0, {length}).bytes()));
    refused(frame(ChannelFrame::head, std::string(1, '\0') + sizes(0, {length, length}).bytes()));
  }
  refused(frame(ChannelFrame::message, net::Writer().u32(0).u32(~0u).bytes()));
  refused(frame(ChannelFrame::head,
                std::string(1, '\0') + sizes(static_cast<uint32_t>(kMostBytes) + 1, {}).bytes()));
}

TEST(channel_tcp_inbox, a_terabyte_that_is_announced_and_not_sent_costs_nothing) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory";
  const size_t before = testing::data_bytes();
  std::vector<std::unique_ptr<Inbox>> inboxes;
  for (int i = 0; i < 100; ++i) {
    inboxes.push_back(std::make_unique<Inbox>(std::nullopt));
    for (char place = 0; place < static_cast<char>(kPlaces); ++place) {
      feed(*inboxes.back(),
           frame(ChannelFrame::head, std::string(1, place) + sizes(0, {kMostBodyBytes}).bytes()));
      feed(*inboxes.back(), frame(ChannelFrame::chunk, std::string(1, place) + "abc"));
    }
  }
  // 400 × 4 MiB of addresses, of which a page each is there.
  EXPECT_LT(testing::data_bytes() - before, size_t{2} << 30);
}

TEST(channel_tcp_inbox, a_flipped_bit_anywhere_ends_it_and_delivers_nothing) {
  const std::string key(32, 'k');
  std::string wire;
  {
    net::Seal seal(key);
    wire += seal.sign(frame(ChannelFrame::message, sizes(3, {2}).raw("abcde").bytes()));
    wire +=
        seal.sign(frame(ChannelFrame::head, std::string(1, '\0') + sizes(0, {kChunk + 1}).bytes()));
    wire += seal.sign(frame(ChannelFrame::chunk, std::string(1, '\0') + std::string(kChunk, 'x')));
    wire += seal.sign(frame(ChannelFrame::chunk, std::string(1, '\0') + "x"));
  }
  Inbox honest{net::Seal(key)};
  EXPECT_EQ(feed(honest, wire), 4u);  // two messages, two chunks
  for (size_t at = 0; at < wire.size(); at += at < 300 || at + 300 > wire.size() ? 1 : 9973) {
    std::string altered = wire;
    altered[at] ^= static_cast<char>(1 << at % 8);
    Inbox inbox{net::Seal(key)};
    EXPECT_THROW(feed(inbox, altered), Corrupt) << "byte " << at;
  }
}

TEST(channel_tcp_inbox, a_frame_that_is_repeated_left_out_or_sent_back_is_not_believed) {
  const std::string key(32, 'k');
  net::Seal seal(key), other(std::string(32, 'o'));
  const std::string bare = frame(ChannelFrame::message, sizes(3, {}).raw("abc").bytes());
  const std::string one = seal.sign(bare), two = seal.sign(bare);
  for (const std::string& wire : {one + one, two, two + one, other.sign(bare), bare + bare}) {
    Inbox inbox{net::Seal(key)};
    EXPECT_THROW(feed(inbox, wire), Corrupt);
  }
}

}  // namespace trireme::channel::tcp_inbox_test
