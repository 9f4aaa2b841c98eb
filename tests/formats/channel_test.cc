// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/channel/tcp/inbox.h"
#include "trireme/channel/tcp/layout.h"
#include "trireme/channel/tcp/outbox.h"
#include "trireme/channel/tcp/wire.h"
#include "trireme/net/frame.h"

// What workers say over TCP, as it was when it landed, written by another program (channel_v1.py).
namespace trireme::channel_format_test {
namespace {

using namespace channel;

std::string said_by(const std::string& who) {
  return read_file(trireme::testing::source_path("/tests/formats/channel-v1-") + who + ".bin");
}
std::optional<net::Seal> seal_of(char letter) { return net::Seal(std::string(32, letter)); }

/// The greeting, and the rest to an inbox.
tcp::Greeting begin(const std::string& bytes, char letter, std::vector<tcp::Inbox::News>* news) {
  net::FrameParser first;
  first.expect_seals(std::move(*seal_of(letter)));
  first.feed(bytes);
  const auto frame = first.next(net::kMaxPayloadBefore);
  EXPECT_TRUE(frame && frame->type == 112);
  auto rest = first.release();
  tcp::Inbox inbox(std::move(rest.seal));
  for (std::string_view left = rest.bytes; !left.empty();) {
    const auto room = inbox.room();
    const size_t n = std::min(left.size(), room.parts[0].iov_len);
    std::memcpy(room.parts[0].iov_base, left.data(), n);
    inbox.came(n);
    left.remove_prefix(n);
    while (auto one = inbox.next()) news->push_back(std::move(*one));
  }
  return tcp::decode_greeting(frame->payload);
}
std::string written(const tcp::Parcel& parcel, std::optional<net::Seal>& seal) {
  tcp::Layout layout;
  layout.lay_out(parcel, seal);
  std::string out;
  for (; !layout.written(); layout.wrote(layout.pieces()->iov_len))
    out.append(static_cast<const char*>(layout.pieces()->iov_base), layout.pieces()->iov_len);
  return out;
}
Body body(const std::string& text) {
  auto kept = std::make_shared<std::string>(text);
  const void* const data = kept->data();
  return {std::shared_ptr<const void>(std::move(kept), data), text.size()};
}

}  // namespace

TEST(formats_channel, what_workers_say_in_version_1_is_read) {
  std::vector<tcp::Inbox::News> caller, called;
  const auto trainer = begin(said_by("caller"), 'c', &caller);
  EXPECT_EQ(trainer.version, 1);
  EXPECT_EQ(trainer.self.name, "trainer0");
  EXPECT_EQ(trainer.self.generation, 3u);
  ASSERT_EQ(caller.size(), 3u);
  ASSERT_TRUE(caller[0].message);
  EXPECT_EQ(caller[0].message->bytes, "hello");
  ASSERT_EQ(caller[0].message->bodies.size(), 2u);
  EXPECT_EQ(std::memcmp(caller[0].message->bodies[0].data.get(), "abc", 3), 0);
  EXPECT_EQ(caller[0].message->bodies[1].bytes, 0u);
  EXPECT_EQ(caller[1].we_took, 10u);
  EXPECT_EQ(caller[2].closing, "we are done");
  const auto server = begin(said_by("called"), 's', &called);
  EXPECT_EQ(server.self.name, "server0");
  EXPECT_EQ(server.verdict, tcp::Verdict::welcome);
  ASSERT_EQ(called.size(), 1u);
  EXPECT_EQ(called[0].they_took, 10u);
}

TEST(formats_channel, version_1_is_written_as_another_program_does) {
  auto caller = seal_of('c'), called = seal_of('s');
  tcp::Greeting greeting;
  greeting.self = {"trainer0", 3};
  tcp::Parcel first;
  first.greeting = encode_greeting(greeting);
  first.messages.push_back({"hello", {body("abc"), {nullptr, 0}}});
  first.of = std::make_shared<tcp::LongMessage>();
  first.of->message = {"long", {body(std::string(262144, 'x'))}};
  first.place = 2;
  first.begins = true;
  first.chunk = 10;
  first.closing = "we are done";
  EXPECT_TRUE(written(first, caller) == said_by("caller"));
  tcp::Parcel answer;
  greeting.self.name = "server0";
  answer.greeting = encode_greeting(greeting);
  answer.taken = 10;
  EXPECT_TRUE(written(answer, called) == said_by("called"));
}

}  // namespace trireme::channel_format_test
