// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "tests/support/paths.h"
#include "trireme/base/encoding.h"
#include "trireme/base/file.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/checkpoint/steps/snapshot/spread_step.h"
#include "trireme/launch/nodes/part_messages.h"
#include "trireme/launch/nodes/part_transfer.h"
#include "trireme/net/auth.h"
#include "trireme/net/frame.h"

// What launchers say of steps in memory, as it was when it landed. part-v1.bin, held-v1.bin and
// staged-v1.bin were written by another program (part_v1.py).
namespace trireme::part_format_test {
namespace {

using launch::PartEnd;
using launch::PartFrame;
using launch::PartHead;
using launch::PartWanted;
using launch::StagedParts;

std::string fixture(const std::string& name) {
  return read_file(trireme::testing::source_path("/tests/formats/") + name + ".bin");
}
std::string frame(PartFrame type, const std::string& payload) {
  return net::encode_frame(static_cast<uint16_t>(type), payload);
}

}  // namespace

TEST(formats_part, a_conversation_of_version_1_is_read_and_written_as_another_program_does) {
  const net::Credentials credentials{"job", net::Secret("0123456789abcdef0123456789abcdef")};
  net::FrameParser in;
  in.feed(fixture("part-v1"));
  const auto hello = *in.next(1000), challenge = *in.next(1000);
  const net::HandshakeKeys keys(credentials, net::encode_frame(hello.type, hello.payload),
                                net::encode_frame(challenge.type, challenge.payload));
  EXPECT_EQ(*in.next(1000), (net::Frame{3, keys.client_proof}));
  EXPECT_EQ(*in.next(1000), (net::Frame{4, keys.server_proof}));
  const auto next = [&](PartFrame type) {
    const auto frame = in.next(1000);
    EXPECT_TRUE(frame && frame->type == static_cast<uint16_t>(type));
    return frame ? frame->payload : "";
  };
  in.expect_seals(net::Seal(keys.client_seal));
  const auto wanted = decode<PartWanted>(next(PartFrame::wanted));
  EXPECT_EQ(wanted.save, "save");
  EXPECT_EQ(wanted.rank, 3);
  in.expect_seals(net::Seal(keys.server_seal));
  const auto head = decode<PartHead>(next(PartFrame::head));
  EXPECT_EQ(head.bytes, 3u);
  EXPECT_EQ(head.refusal, "");
  EXPECT_EQ(next(PartFrame::bytes), "abc");
  EXPECT_EQ(decode<PartEnd>(next(PartFrame::end)).sum, Checksum::number_of("abc", 3));
  EXPECT_EQ(in.buffered(), 0u);

  net::Seal asks(keys.client_seal), holds(keys.server_seal);
  std::string written = asks.sign(frame(PartFrame::wanted, encode(PartWanted{"save", 3})));
  written += holds.sign(frame(PartFrame::head, encode(PartHead{3, ""})));
  written += holds.sign(frame(PartFrame::bytes, "abc"));
  written += holds.sign(frame(PartFrame::end, encode(PartEnd{Checksum::number_of("abc", 3)})));
  EXPECT_TRUE(fixture("part-v1").ends_with(written));
}

TEST(formats_part, what_launchers_say_that_they_hold_is_read_and_written) {
  const auto held = decode<HostParts>(fixture("held-v1"));
  EXPECT_EQ(held.attempt, 5);
  EXPECT_EQ(held.parts, (std::vector<SpreadPart>{{"/run", "save", 8, 0, 2, 4096, true},
                                                 {"/run", "save", 8, 1, 2, 8192, false}}));
  EXPECT_EQ(held.address, "10.0.0.1:4711");
  EXPECT_EQ(held.room, uint64_t{1} << 30);
  EXPECT_TRUE(encode(held) == fixture("held-v1"));
  const auto staged = decode<StagedParts>(fixture("staged-v1"));
  EXPECT_EQ(staged.fault, "");
  EXPECT_EQ(staged.address, "10.0.0.1:4711");
  EXPECT_EQ(staged.parts, (std::vector<std::pair<int64_t, uint64_t>>{{0, 4096}, {1, 8192}}));
  EXPECT_TRUE(encode(staged) == fixture("staged-v1"));
}

// handover-v1.bin: rank 5 hands over its slot 1.
TEST(formats_part, memory_that_a_rank_hands_over_in_version_1_is_held) {
  const PrivateFolder folder("handover");
  SnapshotHolder holder(folder / "socket");
  const UniqueFd old = connect_for_descriptors(folder / "socket");
  const std::string message = fixture("handover-v1");
  const UniqueFd memory = launch::part_memory(4096);
  ASSERT_EQ(::pwrite(memory.get(), "x", 1, 0), 1);
  ASSERT_TRUE(send_descriptor(old.get(), message.data(), message.size(), memory.get()));
  const std::vector<HandedSnapshot> held = holder.take_all();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].rank, 5);
  char first = 0;
  EXPECT_EQ(::pread(held[0].fd.get(), &first, 1, 0), 1);
  EXPECT_EQ(first, 'x');
}

}  // namespace trireme::part_format_test
