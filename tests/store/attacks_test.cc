// SPDX-License-Identifier: Apache-2.0
// Strangers at the job's port: whatever they do, a real client goes on meanwhile.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/store/strangers.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/store/protocol.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace attacks_test {

using namespace trireme;
using namespace trireme::testing;
using namespace std::chrono_literals;

namespace {

class store_attacks : public ::testing::Test {
 protected:
  store_attacks() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~store_attacks() override { set_log_sink({}); }

  static StoreServer::Options options() {
    StoreServer::Options out{with(kSecret)};
    out.handshake_limit = 500ms;
    return out;
  }
  net::Socket connect_and_authenticate() { return net::connect(server_.endpoints()[0], soon()); }

  StoreServer server_{options()};
  RealClient real_{server_.endpoints()[0]};
};

/// Room for this many descriptors, and whether that could be had.
bool allow_descriptors(rlim_t n) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= n) return true;
  limit.rlim_cur = std::min(n, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= n;
}

}  // namespace

TEST_F(store_attacks, port_probes) {
  for (int i = 0; i < 200; ++i) {
    auto socket = connect_and_authenticate();
    if (i % 3 == 0) {  // a reset
      linger now{1, 0};
      ::setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    } else if (i % 3 == 1) {
      socket.send_all("GET / HTTP/1.0\r\n\r\n", soon());
      EXPECT_TRUE(closes(socket, soon()));
    }
  }
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, random_bytes) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = i % 2 ? net::encode_frame(static_cast<uint16_t>(random() % 8), "") : "";
    for (int n = random() % 5000; n > 0; --n) bytes.push_back(static_cast<char>(random()));
    auto socket = connect_and_authenticate();
    try {
      socket.send_all(bytes, soon());
    } catch (const PeerLost&) {  // it saw enough and closed
    }
  }
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, wrong_secrets) {
  for (int i = 0; i < 100; ++i) {
    auto socket = connect_and_authenticate();
    auto guess = with("a guessed secret, number " + std::to_string(i));
    auto refused = net::try_authenticate(socket, guess, soon()).refused;
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, net::Refusal::wrong_secret);
    EXPECT_TRUE(closes(socket, soon()));
  }
  EXPECT_EQ(server_.clients(), 1u);
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, a_replayed_handshake) {
  // Somebody between an honest client and the server passes on and records …
  auto listener = net::Listener::loopback();
  std::string said;
  std::thread between([&] {
    auto client = listener.accept(soon());
    auto server = connect_and_authenticate();
    for (int i = 0; i < 2; ++i) {
      auto from_client = net::recv_frame(client, net::kMaxPayloadBefore, soon());
      said += net::encode_frame(from_client.type, from_client.payload);
      net::send_frame(server, from_client.type, from_client.payload, soon());
      auto from_server = net::recv_frame(server, net::kMaxPayloadBefore, soon());
      net::send_frame(client, from_server.type, from_server.payload, soon());
    }
  });
  auto honest = net::connect(listener.endpoint(), soon());
  EXPECT_FALSE(net::try_authenticate(honest, with(kSecret), soon()).refused);
  between.join();
  // … and says it again, in one piece and with a request behind.
  auto request = detail::encode(detail::Request{detail::Op::set, 0, 0, {"stolen"}, "1", ""});
  for (int i = 0; i < 20; ++i) {
    auto socket = connect_and_authenticate();
    socket.send_all(said + request, soon());
    EXPECT_TRUE(closes(socket, soon()));
  }
  EXPECT_FALSE(server_.local_store()->check({"stolen"}));
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, requests_without_a_handshake) {
  auto request = detail::encode(detail::Request{detail::Op::set_will, 0, 0, {"stolen"}, "1", ""});
  for (int i = 0; i < 20; ++i) {
    auto socket = connect_and_authenticate();
    socket.send_all(request, soon());
    EXPECT_TRUE(closes(socket, soon()));
  }
  EXPECT_FALSE(server_.local_store()->check({"stolen"}));
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, slow_bytes_do_not_buy_time) {
  auto hello =
      net::encode_frame(1, net::Writer().u8(1).string("job").raw(std::string(32, 'c')).bytes());
  std::vector<net::Socket> slow;
  for (int i = 0; i < 50; ++i) slow.push_back(connect_and_authenticate());
  auto start = Clock::now();
  size_t closed = 0;
  for (size_t at = 0; at < hello.size() && closed < slow.size(); ++at) {
    std::this_thread::sleep_for(40ms);  // the pace of the attack
    closed = 0;
    for (auto& socket : slow) {
      try {
        socket.send_all(hello.substr(at, 1), soon());
      } catch (const PeerLost&) {
        ++closed;
      }
    }
  }
  EXPECT_EQ(closed, slow.size());
  EXPECT_LT(seconds_since(start), 1.5);  // the limit of a handshake is half a second
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, oversized_frames) {
  auto header = [](uint16_t type, uint32_t length) {
    return net::Writer().raw("TRIR").u16(net::kFrameVersion).u16(type).u32(length).take();
  };
  for (uint32_t length : {static_cast<uint32_t>(net::kMaxPayloadBefore) + 1, UINT32_MAX}) {
    auto stranger = connect_and_authenticate();
    stranger.send_all(header(1, length), soon());
    EXPECT_TRUE(closes(stranger, soon()));
  }
  for (uint32_t length : {static_cast<uint32_t>(net::kMaxPayloadAfter) + 1, UINT32_MAX}) {
    auto member = connect_and_authenticate();
    auto session = net::authenticate_as_client(member, with(kSecret), soon());
    member.send_all(session.seal(header(16, length)), soon());
    EXPECT_TRUE(closes(member, soon()));
  }
  // Keys that promise more than there is.
  auto lying = connect_and_authenticate();
  auto session = net::authenticate_as_client(lying, with(kSecret), soon());
  auto many = net::Writer().u64(0).i64(0).u32(UINT32_MAX).take();
  lying.send_all(session.seal(net::encode_frame(21, many)), soon());
  EXPECT_TRUE(closes(lying, soon()));
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, a_thousand_idle_connections) {
  if (!allow_descriptors(2500)) GTEST_SKIP() << "no room for 2,500 descriptors here";
  std::vector<net::Socket> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(connect_and_authenticate());
  auto start = Clock::now();
  auto late = TcpStore::connect(server_.endpoints()[0], with(kSecret), soon());
  EXPECT_GT(late->add("n", 1), 0);
  EXPECT_LT(seconds_since(start), 5);
  for (auto& socket : idle) EXPECT_TRUE(closes(socket, soon()));
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_attacks, not_one_but_a_thousand_clients) {
  if (!allow_descriptors(2500)) GTEST_SKIP() << "no room for 2,500 descriptors here";
  constexpr int kClients = 1000;
  std::vector<std::unique_ptr<TcpStore>> clients(kClients);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < kClients; i += 4) {
        clients[i] = TcpStore::connect(server_.endpoints()[0], with(kSecret), soon());
        clients[i]->set("rank/" + std::to_string(i), std::to_string(i));
        if (clients[i]->add("joined", 1) == kClients) clients[i]->set("all", "here");
      }
      for (int i = t; i < kClients; i += 4) {
        auto next = (i + 1) % kClients;
        wrong += clients[i]->get("all", soon()) != "here";
        wrong += clients[i]->get("rank/" + std::to_string(next), soon()) != std::to_string(next);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(server_.clients(), size_t{kClients + 1});
  EXPECT_EQ(real_.stop(), "");
}

}  // namespace attacks_test
