// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/net/auth.h"
#include "trireme/net/connect.h"
#include "trireme/net/frame.h"
#include "trireme/store/protocol.h"
#include "trireme/store/server/tcp_server.h"

namespace control_test {

using namespace trireme;
using namespace std::chrono_literals;

// control-v1.bin and control-v2.bin hold what those versions of the control protocol said: a hello
// (job "job", with a secret) and a request to add. The store of version 1 kept no wills, and
// version 2 sealed nothing: whoever speaks them is refused, and hears both versions. control-v3.bin
// is a whole conversation of version 3, written by another program (control_v3.py).
namespace {

std::string fixture(int version) {
  return read_file(trireme::testing::source_path("/tests/formats/control-v") +
                   std::to_string(version) + ".bin");
}

bool names_both(const std::string& text, int version) {
  return text.find("version " + std::to_string(version)) != std::string::npos &&
         text.find("version 3") != std::string::npos;
}

}  // namespace

TEST(formats_control, older_versions_are_refused_naming_both) {
  ASSERT_EQ(net::kFrameVersion, 3) << "a new version: keep these fixtures, add one of it";
  for (int version : {1, 2}) {
    net::FrameParser in;
    in.feed(fixture(version));
    try {
      in.next(net::kMaxPayloadAfter);
      FAIL() << "read";
    } catch (const Mismatch& error) {
      EXPECT_TRUE(names_both(error.what(), version)) << error.what();
    }
  }
}

TEST(formats_control, only_the_number_has_changed_in_what_older_versions_said_first) {
  for (int version : {1, 2}) {
    auto bytes = fixture(version);
    bytes[4] = 3;
    bytes[net::kFrameHeaderBytes + 40 + 4] = 3;
    net::FrameParser in;
    in.feed(bytes);
    EXPECT_EQ(in.next(1000)->type, 1);
    EXPECT_EQ(in.next(1000)->type, 19);
    EXPECT_EQ(in.buffered(), 0u);
  }
}

TEST(formats_control, a_rank_of_an_older_version_hears_both_from_the_store) {
  StoreServer server(StoreServer::Options{{"job", {}}});
  for (int version : {1, 2}) {
    auto old = net::connect(server.endpoints()[0], Deadline::after(10s));
    old.send_all(fixture(version), Deadline::after(10s));
    auto refused = net::recv_frame(old, net::kMaxPayloadBefore, Deadline::after(10s));
    EXPECT_TRUE(names_both(refused.payload, version)) << refused.payload;
  }
}

TEST(formats_control, version_3_is_read_and_written_as_another_program_does) {
  const net::Credentials credentials{"job", net::Secret("0123456789abcdef0123456789abcdef")};
  net::FrameParser in;
  in.feed(fixture(3));
  auto hello = *in.next(1000), challenge = *in.next(1000);
  net::HandshakeKeys keys(credentials, net::encode_frame(hello.type, hello.payload),
                          net::encode_frame(challenge.type, challenge.payload));
  EXPECT_EQ(*in.next(1000), (net::Frame{3, keys.client_proof}));
  EXPECT_EQ(*in.next(1000), (net::Frame{4, keys.server_proof}));
  const trireme::detail::Request request{trireme::detail::Op::add, 1, 2, {"k"}, "", ""};
  const trireme::detail::Reply reply{trireme::detail::Status::ok, 2, "", {}};
  const auto sealed_request = net::Seal(keys.client_seal).sign(trireme::detail::encode(request));
  const auto sealed_reply = net::Seal(keys.server_seal).sign(trireme::detail::encode(reply));
  EXPECT_TRUE(fixture(3).ends_with(sealed_request + sealed_reply));
  in.expect_seals(net::Seal(keys.client_seal));
  EXPECT_EQ(trireme::detail::decode_request(*in.next(1000)), request);
  in.expect_seals(net::Seal(keys.server_seal));
  EXPECT_EQ(trireme::detail::decode_reply(*in.next(1000)), reply);
  EXPECT_EQ(in.buffered(), 0u);
}

}  // namespace control_test
