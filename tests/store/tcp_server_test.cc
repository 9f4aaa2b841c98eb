// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/server/tcp_server.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "tests/support/processes.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/store/protocol.h"
#include "trireme/store/tcp_store.h"
#include "trireme/store/unix_store.h"

namespace tcp_server_test {

using namespace trireme;
using namespace std::chrono_literals;

namespace {

using trireme::testing::has;

Deadline soon() { return Deadline::after(10s); }
net::Credentials with(const std::string& secret, std::string job = "job") {
  return {std::move(job), net::Secret(secret)};
}
const std::string kSecret = "0123456789abcdef0123456789abcdef";

/// Takes the log away from the terminal, for tests that provoke warnings.
class QuietLog {
 public:
  QuietLog() {
    set_log_sink([this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex_);
      lines_.emplace_back(text);
    });
  }
  ~QuietLog() { set_log_sink({}); }
  size_t count(const std::string& part) {
    std::lock_guard lock(mutex_);
    return std::count_if(lines_.begin(), lines_.end(), [&](auto& line) { return has(line, part); });
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// Of this process.
size_t threads() {
  namespace fs = std::filesystem;
  return static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/task"), {}));
}

/// Reads until the other end closes; false when it had not at the deadline.
bool closes(net::Socket& socket, Deadline deadline) {
  char bytes[4096];
  try {
    while (socket.wait_readable(deadline)) {
      auto n = socket.recv_now(bytes, sizeof bytes);
      if (n && *n == 0) return true;
    }
  } catch (const PeerLost&) {
    return true;
  }
  return false;
}

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

TEST(store_tcp_server, a_wrong_secret_hears_so_at_once_and_the_server_too) {
  QuietLog log;
  StoreServer server({with(kSecret)});
  auto start = Clock::now();
  for (int i = 0; i < 2; ++i) {
    auto what = what_of<UsageError>([&] {
      TcpStore::connect(server.endpoints()[0], with("another secret, also long"), soon());
    });
    EXPECT_TRUE(has(what, "wrong secret") && has(what, "TRIREME_SECRET_FILE")) << what;
  }
  EXPECT_LT(seconds_since(start), 3);
  EXPECT_TRUE(has(what_of<UsageError>([&] {
                    TcpStore::connect(server.endpoints()[0], {"job", {}}, soon());
                  }),
                  "does not have it"));
  EXPECT_TRUE(has(what_of<UsageError>([&] {
                    TcpStore::connect(server.endpoints()[0], with(kSecret, "b"), soon());
                  }),
                  "another job"));
  ASSERT_EQ(server.refusals().size(), 1u);  // once per source
  EXPECT_EQ(server.refusals()[0], "127.0.0.1: wrong secret");
  EXPECT_EQ(log.count("wrong secret"), 1u);
  EXPECT_EQ(server.clients(), 0u);
  auto good = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  good->set("k", "v");
  EXPECT_EQ(server.clients(), 1u);
}

TEST(store_tcp_server, a_taken_port_is_a_clear_error) {
  StoreServer first({with(kSecret)});
  auto what =
      what_of<ResourceError>([&] { StoreServer second({with(kSecret)}, first.endpoints()[0]); });
  EXPECT_TRUE(has(what, "port in use") && has(what, first.endpoints()[0].address.text())) << what;
}

TEST(store_tcp_server, a_client_may_come_before_the_server) {
  auto at = unix_store_endpoint(net::random_token());
  auto client = std::async(std::launch::async, [&] {
    return TcpStore::connect(at, {"job", {}}, soon());
  });
  StoreServer server({{"job", {}}}, at);
  client.get()->set("k", "v");
  EXPECT_EQ(server.local_store()->get("k", soon()), "v");
}

TEST(store_tcp_server, a_server_that_never_comes_is_named) {
  auto at = unix_store_endpoint(net::random_token());
  auto what = what_of<Timeout>([&] { TcpStore::connect(at, {"job", {}}, Deadline::after(50ms)); });
  EXPECT_TRUE(has(what, at.text())) << what;
}

TEST(store_tcp_server, another_program_behind_the_port_is_recognised) {
  auto listener = net::Listener::loopback();
  auto web = std::async(std::launch::async, [&] {
    auto s = listener.accept(soon());
    s.send_all("HTTP/1.1 400 Bad Request\r\n\r\n", soon());
    closes(s, soon());
  });
  auto what =
      what_of<UsageError>([&] { TcpStore::connect(listener.endpoint(), with(kSecret), soon()); });
  EXPECT_TRUE(has(what, "is not a Trireme store")) << what;
  web.get();
}

TEST(store_tcp_server, serves_tcp_and_unix_at_once_and_only_tcp_takes_the_secret) {
  std::vector<net::Listener> listeners;
  listeners.push_back(net::Listener::loopback());
  listeners.emplace_back(unix_store_endpoint(net::random_token()));
  StoreServer server({with(kSecret)}, std::move(listeners));
  auto tcp = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  auto same_host = TcpStore::connect(server.endpoints()[1], {"job", {}}, soon());
  auto with_secret_too = TcpStore::connect(server.endpoints()[1], with(kSecret), soon());
  tcp->set("k", "v");
  EXPECT_EQ(same_host->get("k", soon()), "v");
  EXPECT_EQ(with_secret_too->get("k", soon()), "v");
}

TEST(store_tcp_server, two_hundred_clients_meet) {
  StoreServer server({with(kSecret)});
  constexpr int kClients = 200;
  std::vector<std::unique_ptr<TcpStore>> clients(kClients);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < kClients; i += 8) {
        clients[i] = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
        if (clients[i]->add("joined", 1) == kClients) clients[i]->set("all", "here");
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(server.clients(), size_t{kClients});
  for (auto& client : clients) EXPECT_EQ(client->get("all", soon()), "here");
  clients.clear();
  EXPECT_TRUE(server.wait_until_clients_left(soon()));
}

TEST(store_tcp_server, many_waiters_are_answered_by_one_set) {
  StoreServer server({{"job", {}}}, unix_store_endpoint(net::random_token()));
  std::vector<std::future<std::string>> waiters;
  for (int i = 0; i < 40; ++i)
    waiters.push_back(std::async(std::launch::async, [&] {
      auto store = TcpStore::connect(server.endpoints()[0], {"job", {}}, soon());
      store->add("waiting", 1);
      return store->get("go", soon());
    }));
  auto local = server.local_store();
  while (local->try_get("waiting") != "40") std::this_thread::yield();
  local->set("go", "now");
  for (auto& waiter : waiters) EXPECT_EQ(waiter.get(), "now");
}

TEST(store_tcp_server, closes_strangers_in_time_and_serves_on) {
  QuietLog log;
  StoreServer::Options options{with(kSecret)};
  options.handshake_limit = 200ms;
  options.max_pending = 8;
  StoreServer server(std::move(options));
  auto start = Clock::now();
  std::vector<net::Socket> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(net::connect(server.endpoints()[0], soon()));
  auto good = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  good->set("k", "v");
  for (auto& socket : silent) EXPECT_TRUE(closes(socket, soon()));
  EXPECT_GE(seconds_since(start), 0.1);
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_EQ(good->get("k", soon()), "v");
  EXPECT_TRUE(has(server.refusals().at(0), "127.0.0.1")) << server.refusals().at(0);
}

TEST(store_tcp_server, random_bytes_before_and_after_the_handshake_harm_nobody) {
  QuietLog log;
  StoreServer server({with(kSecret)});
  auto good = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    auto socket = net::connect(server.endpoints()[0], soon());
    try {
      net::Session session;
      if (round % 2) session = net::authenticate_as_client(socket, with(kSecret), soon());
      std::string bytes;
      if (round % 4 < 2) {
        bytes = detail::encode(detail::Request{detail::Op::add, 0, 1, {"fuzz"}, "", ""});
        for (int n = random() % 3; n >= 0; --n)
          bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
      } else {
        if (random() % 2) bytes = "TRIR\3";
        for (int n = random() % 3000; n > 0; --n) bytes.push_back(static_cast<char>(random()));
      }
      // Sealed: what a client that went mad says, not what somebody puts in.
      socket.send_all(bytes.size() > 12 ? session.seal(bytes) : bytes, soon());
      if (random() % 2) socket.shutdown_write();
    } catch (const PeerLost&) {  // it saw enough and closed
    }
  }
  EXPECT_EQ(good->add("n", 1), 1);
}

TEST(store_tcp_server, a_client_that_takes_no_replies_does_not_stop_the_others) {
  StoreServer server({with(kSecret)});
  auto good = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  good->set("large", std::string(8 << 20, 'x'));
  auto lazy = net::connect(server.endpoints()[0], soon());
  auto session = net::authenticate_as_client(lazy, with(kSecret), soon());
  std::string asks;
  for (int i = 0; i < 100; ++i)
    asks +=
        session.seal(detail::encode(detail::Request{detail::Op::try_get, 0, 0, {"large"}, "", ""}));
  lazy.send_all(asks, soon());
  EXPECT_EQ(good->add("n", 1), 1);
  auto reply =
      detail::decode_reply(net::recv_frame(lazy, net::kMaxPayloadAfter, soon(), &*session.in));
  EXPECT_EQ(reply.value.size(), size_t{8} << 20);
}

TEST(store_tcp_server, a_full_table_says_so_and_deleting_makes_room) {
  StoreServer::Options options{with(kSecret)};
  options.max_bytes = 10'000;
  StoreServer server(std::move(options));
  auto store = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  store->set("a", std::string(6000, 'x'));
  EXPECT_TRUE(
      has(what_of<ResourceError>([&] { store->set("b", std::string(6000, 'x')); }), "full"));
  store->set("a", std::string(7000, 'y'));  // replacing counts once
  EXPECT_TRUE(store->delete_key("a"));
  store->set("b", std::string(6000, 'x'));
}

TEST(store_tcp_server, stays_until_the_last_client_left) {
  StoreServer server({with(kSecret)});
  auto a = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  auto b = a->clone(soon());
  EXPECT_FALSE(server.wait_until_clients_left(Deadline::after(20ms)));
  auto waiting =
      std::async(std::launch::async, [&] { return server.wait_until_clients_left(soon()); });
  a.reset();
  b->set("still", "served");
  b.reset();
  EXPECT_TRUE(waiting.get());
}

TEST(store_tcp_server, takes_nobody_new_after_it_stopped_listening) {
  StoreServer server({{"job", {}}}, unix_store_endpoint(net::random_token()));
  auto store = TcpStore::connect(server.endpoints()[0], {"job", {}}, soon());
  server.stop_listening();
  EXPECT_THROW(store->clone(Deadline::after(20ms)), Timeout);
  EXPECT_EQ(store->add("n", 1), 1);
  net::Listener next(server.endpoints()[0]);  // the name is free
  server.stop_listening();
}

TEST(store_tcp_server, clients_of_a_stopped_server_learn_it_even_in_a_wait) {
  auto server = std::make_unique<StoreServer>(StoreServer::Options{with(kSecret)});
  auto store = TcpStore::connect(server->endpoints()[0], with(kSecret), soon());
  auto local = server->local_store();
  auto waiter = std::async(std::launch::async, [&] {
    return what_of<PeerLost>([&] { store->get("never", Deadline::never()); });
  });
  server.reset();
  EXPECT_TRUE(has(waiter.get(), "is gone"));
  EXPECT_THROW(store->set("k", "v"), PeerLost);
  local->set("k", "v");  // outlives the server
  EXPECT_EQ(local->get("k", soon()), "v");
}

TEST(store_tcp_server, a_store_that_does_not_answer_is_given_up) {
  auto listener = net::Listener::loopback();
  auto frozen = std::async(std::launch::async, [&] {
    auto s = listener.accept(soon());
    net::authenticate_as_server(s, with(kSecret), soon());  // and never a word more
    return s;
  });
  auto store = TcpStore::connect(listener.endpoint(), with(kSecret), soon(), 50ms);
  auto held = frozen.get();
  EXPECT_TRUE(has(what_of<Timeout>([&] { store->set("k", "v"); }), "did not answer"));
  EXPECT_THROW(store->get("k", soon()), PeerLost);  // that connection is finished
}

TEST(store_tcp_server, two_threads_on_one_client_are_told) {
  StoreServer server({with(kSecret)});
  auto store = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  auto other = store->clone(soon());
  std::atomic<bool> stop{false};
  std::atomic<int> told{0};
  auto use = [&] {
    while (!stop) {
      try {
        store->try_get("k");
      } catch (const UsageError& error) {
        if (has(error.what(), "two threads")) ++told;
        stop = true;
      }
    }
  };
  std::thread a(use), b(use);
  a.join();
  b.join();
  EXPECT_GE(told, 1);
  EXPECT_EQ(other->add("n", 1), 1);
}

TEST(store_protocol, requests_and_replies_read_back_and_damage_is_refused) {
  using detail::Op;
  detail::Request request{Op::compare_set, 77, -5, {"key"}, "value", std::string("e\0", 2)};
  net::FrameParser in;
  in.feed(detail::encode(request));
  EXPECT_EQ(detail::decode_request(*in.next(1000)), request);
  detail::Reply reply{detail::Status::absent, 9, "v", {"a", "b"}};
  in.feed(detail::encode(reply));
  EXPECT_EQ(detail::decode_reply(*in.next(1000)), reply);
  EXPECT_THROW(detail::decode_request({15, ""}), Corrupt);
  EXPECT_THROW(detail::decode_request({28, ""}), Corrupt);
  EXPECT_THROW(detail::decode_reply({16, ""}), Corrupt);

  auto good = detail::encode(request).substr(net::kFrameHeaderBytes);
  std::mt19937_64 random(1);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    try {
      detail::decode_request({static_cast<uint16_t>(16 + random() % 9), bytes});
    } catch (const Corrupt&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

TEST(store_protocol, version_3_looks_like_this) {
  // The landed format: a change here is a new version of the frame.
  detail::Request request{detail::Op::add, 1, 2, {"k"}, "", ""};
  EXPECT_EQ(detail::encode(request), std::string("TRIR\3\0\x13\0\x21\0\0\0"
                                                 "\1\0\0\0\0\0\0\0"
                                                 "\2\0\0\0\0\0\0\0"
                                                 "\1\0\0\0\1\0\0\0k"
                                                 "\0\0\0\0"
                                                 "\0\0\0\0",
                                                 45));
  detail::Request will{detail::Op::set_will, 0, 0, {"k"}, "v", ""};
  EXPECT_EQ(detail::encode(will), std::string("TRIR\3\0\x19\0\x22\0\0\0"
                                              "\0\0\0\0\0\0\0\0"
                                              "\0\0\0\0\0\0\0\0"
                                              "\1\0\0\0\1\0\0\0k"
                                              "\1\0\0\0v"
                                              "\0\0\0\0",
                                              46));
}

TEST(store_tcp_server, ends_by_itself_when_its_last_client_leaves_if_told_so) {
  std::thread([] {}).join();  // ThreadSanitizer's own thread comes with the first
  const size_t before = threads();
  StoreServer::Options options;
  options.credentials.job_id = "job";
  StoreServer server(options);
  const auto at = server.endpoints().front();
  auto one = TcpStore::connect(at, {"job", std::nullopt}, soon());
  auto two = TcpStore::connect(at, {"job", std::nullopt}, soon());
  server.end_with_the_last_client();
  std::string why;
  EXPECT_FALSE(net::try_connect(at, Deadline::after(100ms), &why)) << "it takes newcomers";
  one.reset();
  two->set("k", "v");
  EXPECT_EQ(two->try_get("k"), "v");
  EXPECT_EQ(threads(), before + 1);
  two.reset();
  EXPECT_TRUE(trireme::testing::eventually([&] { return threads() == before; }));
  EXPECT_EQ(server.clients(), 0u);
}

}  // namespace tcp_server_test
