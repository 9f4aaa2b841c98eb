// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/part_transfer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/launch/nodes/hear_all.h"
#include "trireme/launch/nodes/part_messages.h"
#include "trireme/net/connect.h"
#include "trireme/net/frame.h"
#include "trireme/store/memory_store.h"

namespace trireme::launch::part_transfer_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::function<bool()> kNever = [] { return false; };

class launch_part_transfer : public ::testing::Test {
 protected:
  launch_part_transfer()
      : server_(net::Listener::loopback(), {"job", secret_}),
        address_(net::Address{"127.0.0.1", server_.port()}.text()) {}

  static UniqueFd memory_with(const std::string& bytes) {
    UniqueFd fd = part_memory(bytes.size());
    EXPECT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return fd;
  }
  static std::string text_of(int fd, size_t size) {
    std::string bytes(size, '\0');
    EXPECT_EQ(::pread(fd, bytes.data(), size, 0), static_cast<ssize_t>(size));
    return bytes;
  }
  UniqueFd fetch(const std::string& save, int64_t rank, uint64_t bytes) const {
    return fetch_part(address_, {"job", secret_}, save, rank, bytes, kNever);
  }

  const net::Secret secret_{net::generate_secret()};
  PartServer server_;
  const std::string address_;
};

TEST_F(launch_part_transfer, a_part_comes_as_it_was_and_sealed) {
  for (const size_t size : {size_t{1}, size_t{4096}, kPartPiece, 2 * kPartPiece + 5}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    {
      const UniqueFd memory = memory_with(bytes);
      server_.offer("steps", {{"save", 3, memory.get()}});
    }
    const UniqueFd got = fetch("save", 3, size);
    EXPECT_TRUE(text_of(got.get(), size) == bytes) << size;
    EXPECT_TRUE(::fcntl(got.get(), F_GET_SEALS) & F_SEAL_WRITE);
  }
}

TEST_F(launch_part_transfer, what_is_not_there_any_more_or_has_another_size_is_an_error) {
  const UniqueFd memory = memory_with("abc");
  server_.offer("steps", {{"save", 3, memory.get()}});
  EXPECT_THROW(fetch("save", 2, 3), ResourceError);
  EXPECT_THROW(fetch("other", 3, 3), ResourceError);
  EXPECT_THROW(fetch("save", 3, 4), Corrupt);
  server_.offer("copies", {});
  EXPECT_EQ(text_of(fetch("save", 3, 3).get(), 3), "abc") << "offered under another name";
  server_.offer("steps", {});
  EXPECT_THROW(fetch("save", 3, 3), ResourceError);
}

TEST_F(launch_part_transfer, who_has_another_secret_gets_nothing) {
  const UniqueFd memory = memory_with("abc");
  server_.offer("steps", {{"save", 3, memory.get()}});
  for (const net::Credentials& stranger :
       {net::Credentials{"job", net::Secret(net::generate_secret())},
        net::Credentials{"job", std::nullopt}, net::Credentials{"other", secret_}})
    EXPECT_THROW(fetch_part(address_, stranger, "save", 3, 3, kNever), UsageError);
}

TEST_F(launch_part_transfer, nobody_there_and_an_attempt_that_is_over_end_it) {
  std::string nobody;
  {
    const net::Listener gone = net::Listener::loopback();
    nobody = gone.endpoint().address.text();
  }
  EXPECT_THROW(fetch_part(nobody, {"job", secret_}, "save", 3, 3, kNever), PeerLost);
  const UniqueFd memory = memory_with("abc");
  server_.offer("steps", {{"save", 3, memory.get()}});
  EXPECT_THROW(fetch_part(address_, {"job", secret_}, "save", 3, 3, [] { return true; }), Timeout);
}

// A holder that dies, or lies, in the middle of a part.
TEST_F(launch_part_transfer, a_part_that_is_torn_or_altered_is_not_taken) {
  for (const char* how : {"torn", "altered"}) {
    net::Listener listener = net::Listener::loopback();
    const net::Credentials credentials{"job", secret_};
    std::thread liar([&] {
      net::Socket socket = listener.accept(Deadline::after(seconds(10)));
      net::Session session =
          net::authenticate_as_server(socket, credentials, Deadline::after(seconds(10)));
      net::recv_frame(socket, net::kMaxPayloadAfter, Deadline::after(seconds(10)), &*session.in);
      const auto send = [&](PartFrame type, const std::string& payload) {
        socket.send_all(session.seal(net::encode_frame(static_cast<uint16_t>(type), payload)),
                        Deadline::after(seconds(10)));
      };
      send(PartFrame::head, encode(PartHead{6, ""}));
      send(PartFrame::bytes, "abc");
      if (std::string(how) == "torn") return;
      send(PartFrame::bytes, "def");
      send(PartFrame::end, encode(PartEnd{4711}));
    });
    const std::string at = listener.endpoint().address.text();
    if (std::string(how) == "torn")
      EXPECT_THROW(fetch_part(at, credentials, "save", 0, 6, kNever), PeerLost);
    else
      EXPECT_THROW(fetch_part(at, credentials, "save", 0, 6, kNever), Corrupt);
    liar.join();
  }
}

TEST_F(launch_part_transfer, a_server_ends_while_somebody_stays_connected) {
  auto server =
      std::make_unique<PartServer>(net::Listener::loopback(), net::Credentials{"job", secret_});
  const net::Socket silent =
      net::connect(net::Endpoint::tcp({"127.0.0.1", server->port()}), Deadline::after(seconds(5)));
  const auto start = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - start, seconds(3));
}

TEST(launch_hear_all, each_round_gives_the_texts_of_all_and_leaves_two_rounds_at_most) {
  MemoryStore store;
  constexpr int kNodes = 3;
  std::vector<std::thread> nodes;
  for (int node = 0; node < kNodes; ++node)
    nodes.emplace_back([&, node] {
      const auto own = store.clone(Deadline::never());
      HearAll all(*own, "held", node, kNodes);
      for (int round = 0; round < 20; ++round) {
        const auto said =
            all.round(std::to_string(round * kNodes + node), Deadline::after(seconds(20)), kNever);
        ASSERT_TRUE(said);
        for (int other = 0; other < kNodes; ++other)
          EXPECT_EQ((*said)[static_cast<size_t>(other)], std::to_string(round * kNodes + other));
      }
    });
  for (std::thread& node : nodes) node.join();
  EXPECT_LE(store.num_keys(), kNodes) << "of the last round";
}

TEST(launch_hear_all, one_that_says_nothing_is_not_waited_for_for_ever) {
  MemoryStore store;
  HearAll all(store, "held", 0, 2);
  EXPECT_FALSE(all.round("x", Deadline::after(milliseconds(50)), kNever));
  EXPECT_FALSE(all.round("x", Deadline::never(), [] { return true; }));
}

}  // namespace
}  // namespace trireme::launch::part_transfer_test
