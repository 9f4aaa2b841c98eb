// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/net/auth.h"
#include "trireme/net/connect.h"
#include "trireme/net/frame.h"
#include "trireme/store/tcp_server.h"

using namespace trireme;
using namespace std::chrono_literals;

// control-v1.bin holds what version 1 of the control protocol said: a hello (job "job", with a
// secret) and a request to add. Its store kept no wills: whoever speaks it is refused, and hears
// both versions.
namespace {

const std::string kFixture = read_file(TRIREME_SOURCE_DIR "/tests/formats/control-v1.bin");

bool names_both(const std::string& text) {
  return text.find("version 1") != std::string::npos && text.find("version 2") != std::string::npos;
}

}  // namespace

TEST(formats_control, version_1_is_refused_naming_both) {
  ASSERT_EQ(net::kFrameVersion, 2) << "a new version: keep this fixture, add one of version 2";
  net::FrameParser in;
  in.feed(kFixture);
  try {
    in.next(net::kMaxPayloadAfter);
    FAIL() << "read";
  } catch (const Mismatch& error) {
    EXPECT_TRUE(names_both(error.what())) << error.what();
  }
}

TEST(formats_control, only_the_number_has_changed_in_what_version_1_said) {
  auto bytes = kFixture;
  bytes[4] = 2;
  bytes[net::kFrameHeaderBytes + 40 + 4] = 2;
  net::FrameParser in;
  in.feed(bytes);
  EXPECT_EQ(in.next(1000)->type, 1);
  EXPECT_EQ(in.next(1000)->type, 19);
  EXPECT_EQ(in.buffered(), 0u);
}

TEST(formats_control, a_rank_of_version_1_hears_both_from_the_store) {
  StoreServer server(StoreServer::Options{{"job", {}}});
  auto old = net::connect(server.endpoints()[0], Deadline::after(10s));
  old.send_all(kFixture, Deadline::after(10s));
  auto refused = net::recv_frame(old, net::kMaxPayloadBefore, Deadline::after(10s));
  EXPECT_TRUE(names_both(refused.payload)) << refused.payload;
}
