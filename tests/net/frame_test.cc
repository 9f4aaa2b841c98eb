// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "trireme/base/error.h"

namespace frame_test {

using namespace trireme;
using namespace trireme::net;

namespace {

template <class E>
std::string what_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace

TEST(net_frame, version_3_looks_like_this) {
  // The landed format: a change here is a new version.
  EXPECT_EQ(encode_frame(0x0203, "hi"), std::string("TRIR\3\0\3\2\2\0\0\0hi", 14));
}

TEST(net_frame, fields_read_back) {
  auto bytes = Writer()
                   .u8(200)
                   .u16(60000)
                   .u32(4000000000u)
                   .u64(UINT64_MAX - 1)
                   .i64(INT64_MIN)
                   .string(std::string("a\0b", 3))
                   .raw("xyz")
                   .take();
  Reader in(bytes, "test");
  EXPECT_EQ(in.u8(), 200);
  EXPECT_EQ(in.u16(), 60000);
  EXPECT_EQ(in.u32(), 4000000000u);
  EXPECT_EQ(in.u64(), UINT64_MAX - 1);
  EXPECT_EQ(in.i64(), INT64_MIN);
  EXPECT_EQ(in.string(), std::string_view("a\0b", 3));
  EXPECT_THROW(in.finish(), Corrupt);
  EXPECT_EQ(in.raw(3), "xyz");
  EXPECT_NO_THROW(in.finish());
  EXPECT_THROW(in.u8(), Corrupt);
}

TEST(net_frame, promised_lengths_beyond_the_end_are_refused) {
  auto bytes = Writer().u32(UINT32_MAX).raw("abc").take();
  auto what = what_of<Corrupt>([&] { Reader(bytes, "the greeting").string(); });
  EXPECT_NE(what.find("the greeting"), std::string::npos);
  EXPECT_THROW(Reader(bytes, "x").count(1), Corrupt);
  auto three = Writer().u32(3).raw("abc").take();
  EXPECT_EQ(Reader(three, "x").count(1), 3u);
  EXPECT_THROW(Reader(three, "x").count(2), Corrupt);
  EXPECT_THROW(Reader(three, "x").string(2), Corrupt);
}

TEST(net_frame, arrives_whole_however_it_is_cut) {
  std::string stream =
      encode_frame(1, "first") + encode_frame(2, "") + encode_frame(3, std::string(5000, 'z'));
  for (size_t step : {size_t{1}, size_t{7}, size_t{13}, stream.size()}) {
    FrameParser in;
    std::vector<Frame> got;
    for (size_t i = 0; i < stream.size(); i += step) {
      in.feed(std::string_view(stream).substr(i, step));
      while (auto frame = in.next(8192)) got.push_back(*frame);
    }
    ASSERT_EQ(got.size(), 3u);
    EXPECT_EQ(got[0], (Frame{1, "first"}));
    EXPECT_EQ(got[1], (Frame{2, ""}));
    EXPECT_EQ(got[2].payload.size(), 5000u);
    EXPECT_EQ(in.buffered(), 0u);
  }
}

TEST(net_frame, another_version_is_refused_naming_both) {
  auto bytes = encode_frame(1, "x");
  for (int other : {1, 2, 9}) {
    bytes[4] = static_cast<char>(other);
    FrameParser in;
    in.feed(bytes);
    auto what = what_of<Mismatch>([&] { in.next(100); });
    EXPECT_NE(what.find("version " + std::to_string(other)), std::string::npos) << what;
    EXPECT_NE(what.find("version 3"), std::string::npos) << what;
  }
  bytes[4] = 0;
  FrameParser zero;
  zero.feed(bytes);
  EXPECT_THROW(zero.next(100), Corrupt);
}

TEST(net_frame, the_limit_holds_before_the_payload_comes) {
  FrameParser in;
  in.feed(encode_frame(1, std::string(kMaxPayloadBefore + 1, 'x')).substr(0, kFrameHeaderBytes));
  EXPECT_THROW(in.next(kMaxPayloadBefore), Corrupt);
  EXPECT_THROW(encode_frame(1, std::string(kMaxPayloadAfter + 1, 'x')), UsageError);
}

TEST(net_frame, the_first_wrong_byte_is_enough) {
  FrameParser in;
  in.feed("G");  // "GET / HTTP/1.1"
  EXPECT_THROW(in.next(100), Corrupt);
}

TEST(net_frame, goes_through_a_socket) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Socket a(UniqueFd(fds[0]), "a"), b(UniqueFd(fds[1]), "b");
  auto soon = Deadline::after(std::chrono::seconds(5));
  send_frame(a, 7, "payload", soon);
  EXPECT_EQ(recv_frame(b, 100, soon), (Frame{7, "payload"}));
  send_frame(a, 7, std::string(101, 'x'), soon);
  EXPECT_THROW(recv_frame(b, 100, soon), Corrupt);
}

TEST(net_frame, random_and_damaged_bytes_give_frames_or_an_error_and_bounded_memory) {
  std::mt19937_64 random(42);
  std::string good = encode_frame(1, "hello") + encode_frame(2, std::string(300, 'x'));
  int refused = 0, whole = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes;
    if (round % 2) {
      bytes = good;
      for (int n = random() % 4; n >= 0; --n)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    } else {
      if (random() % 2) bytes = "TRIR";
      for (int n = random() % 40; n > 0; --n)
        bytes.push_back(static_cast<char>(random() % 3 ? random() : 0));
    }
    FrameParser in;
    try {
      size_t fed = 0;
      while (fed < bytes.size()) {
        size_t n = 1 + random() % 50;
        in.feed(std::string_view(bytes).substr(fed, n));
        fed += n;
        while (auto frame = in.next(kMaxPayloadBefore)) {
          ++whole;
          ASSERT_LE(frame->payload.size(), kMaxPayloadBefore);
          Reader fields(frame->payload, "fuzz");
          try {
            fields.u16();
            for (auto n = fields.count(4); n > 0; --n) fields.string(64);
          } catch (const Corrupt&) {
          }
        }
        ASSERT_LE(in.buffered(), bytes.size());
      }
    } catch (const Corrupt&) {
      ++refused;
    } catch (const Mismatch&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_GT(whole, 10'000);
}

TEST(net_frame, sealed_in_pieces_is_sealed_and_checked_as_a_whole) {
  const std::string key(32, 'k'), payload = "some words in three pieces";
  Seal whole(key), pieces(key), checks(key);
  for (int number = 0; number < 3; ++number) {
    const std::string sealed = whole.sign(encode_frame(7, payload));
    const std::string header = encode_frame_header({7, static_cast<uint32_t>(payload.size())});
    const auto first = pieces.begin(header);
    for (size_t at = 0; at < payload.size(); at += 9)
      pieces.add(std::string_view(payload).substr(at, 9));
    const auto last = pieces.end();
    EXPECT_EQ(header + std::string(first.data(), first.size()) + payload +
                  std::string(last.data(), last.size()),
              sealed);
    checks.check_header(header, {first.data(), first.size()});
    checks.expect(header);
    checks.add(payload.substr(0, 5));
    checks.add(payload.substr(5));
    checks.check_end({last.data(), last.size()});
  }
  checks.expect("another");
  EXPECT_THROW(checks.check_end(std::string(Seal::kTagBytes, 'x')), Corrupt);
}

}  // namespace frame_test
