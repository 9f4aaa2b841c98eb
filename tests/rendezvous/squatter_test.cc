// SPDX-License-Identifier: Apache-2.0
// Strangers who took the ports beside MASTER_PORT before rank 0 came: the search goes on past them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <random>

#include "tests/store/child.h"
#include "tests/store/strangers.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/job_ports.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/unix_store.h"

namespace squatter_test {

using namespace trireme;
using namespace trireme::testing;
using namespace std::chrono_literals;

namespace {

using trireme::testing::has;

net::Endpoint local(int port) {
  return net::Endpoint::tcp({"127.0.0.1", static_cast<uint16_t>(port)});
}

class Log {
 public:
  Log() {
    set_log_sink([this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex_);
      text_ += std::string(text) + "\n";
    });
  }
  ~Log() { set_log_sink({}); }
  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

/// Serves everybody who knocks, one thread each, until it is destroyed.
class Squatter {
 public:
  using Serve = std::function<void(net::Socket&, const std::atomic<bool>& stop)>;
  Squatter(net::Listener listener, Serve serve)
      : listener_(std::move(listener)), serve_(std::move(serve)), thread_([this] { run(); }) {}
  ~Squatter() {
    stop_ = true;
    thread_.join();
    for (auto& guest : guests_) guest.join();
  }
  int knocks() const { return knocks_; }

 private:
  void run() {
    while (!stop_) {
      if (!net::poll_until(listener_.fd(), POLLIN, Deadline::after(20ms))) continue;
      auto socket = std::make_shared<net::Socket>(listener_.accept(soon()));
      ++knocks_;
      guests_.emplace_back([this, socket] {
        try {
          serve_(*socket, stop_);
        } catch (const Error&) {  // the guest left
        }
      });
    }
  }

  net::Listener listener_;
  Serve serve_;
  std::atomic<bool> stop_{false};
  std::atomic<int> knocks_{0};
  std::vector<std::thread> guests_;
  std::thread thread_;
};

void pause_until(const std::atomic<bool>& stop) {
  while (!stop) std::this_thread::sleep_for(10ms);
}

void hear_hello(net::Socket& socket) { net::recv_frame(socket, net::kMaxPayloadBefore, soon()); }

/// Both ways, byte by byte, until one of the two leaves.
void relay(net::Socket& client, const net::Endpoint& to, const std::atomic<bool>& stop) {
  auto server = net::connect(to, soon());
  char bytes[4096];
  while (!stop) {
    for (auto [from, other] : {std::pair(&client, &server), {&server, &client}}) {
      if (!from->wait_readable(Deadline::after(2ms))) continue;
      auto n = from->recv_now(bytes, sizeof bytes);
      if (n && *n == 0) return;
      if (n) other->send_all({bytes, *n}, soon());
    }
  }
}

const std::map<std::string, Squatter::Serve> kSquatters = {
    {"silent", [](net::Socket&, const auto& stop) { pause_until(stop); }},
    {"closes", [](net::Socket&, const auto&) {}},
    {"resets",
     [](net::Socket& socket, const auto&) {
       linger now{1, 0};
       ::setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
     }},
    {"garbage",
     [](net::Socket& socket, const auto& stop) {
       socket.send_all(std::string(5000, '\x7f'), soon());
       pause_until(stop);
     }},
    {"a web server",
     [](net::Socket& socket, const auto&) {
       socket.send_all("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", soon());
     }},
    {"a byte now and then",
     [](net::Socket& socket, const auto& stop) {
       auto refusal = net::ServerHandshake::refuse(net::Refusal::busy, "later").reply;
       for (size_t i = 0; i < refusal.size() && !stop; ++i) {
         socket.send_all(refusal.substr(i, 1), soon());
         for (int k = 0; k < 100 && !stop; ++k) std::this_thread::sleep_for(10ms);
       }
     }},
    {"says that our secret is wrong",
     [](net::Socket& socket, const auto&) {
       hear_hello(socket);
       socket.send_all(net::ServerHandshake::refuse(net::Refusal::wrong_secret, "no").reply,
                       soon());
     }},
    {"says that it has no secret",
     [](net::Socket& socket, const auto&) {
       hear_hello(socket);
       net::send_frame(socket, 2, std::string(1, '\0') + std::string(34, 'n'), soon());
     }},
    {"claims to have the secret",
     [](net::Socket& socket, const auto&) {
       hear_hello(socket);
       net::send_frame(socket, 2, "\1" + std::string(34, 'n'), soon());
       hear_hello(socket);
       net::send_frame(socket, 4, std::string(32, 'm'), soon());
     }},
    {"another release",
     [](net::Socket& socket, const auto&) {
       auto old = net::encode_frame(2, std::string(33, 'n'));
       old[4] = 2;
       socket.send_all(old, soon());
     }},
    {"lets nobody finish",
     [](net::Socket& socket, const auto& stop) {
       while (!stop) socket.send_all(net::encode_frame(2, std::string(1000, 'n')), soon());
     }},
};

/// A world of two on "several hosts" whose first ports strangers have.
class rendezvous_squatter : public ::testing::Test {
 protected:
  rendezvous_squatter() {
    auto path = folder_ / "secret";
    write_file_atomic(path, kSecret);
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    env_.world_size = 2;
    env_.local_world_size = 1;
    env_.job_id = net::random_token();
    env_.master_addr = "127.0.0.1";
    variables_ = [path](const std::string& name) {
      return name == "TRIREME_SECRET_FILE" ? std::optional(path) : std::nullopt;
    };
  }

  /// Takes the first `n` ports beside a MASTER_PORT of which the next is free.
  std::vector<net::Listener> take_ports(int n) {
    for (int attempt = 0; attempt < 100; ++attempt) {
      env_.master_port = 20000 + static_cast<int>(std::random_device()() % 10000);
      std::vector<net::Listener> taken;
      for (int i = 1; i <= 8; ++i) {
        auto one = net::Listener::if_free(local(env_.master_port + i));
        if (!one) break;
        if (i <= n) taken.push_back(std::move(*one));
        if (i == 8) return taken;
      }
    }
    throw std::runtime_error("no free ports");
  }
  int port(int i) const { return env_.master_port + i; }

  /// Both ranks join and speak through the store; what each threw.
  std::vector<std::string> meet(Duration rank_0_comes_late = {}) {
    std::vector<std::future<std::string>> ranks;
    for (int r : {0, 1})
      ranks.push_back(std::async(std::launch::async, [this, r, rank_0_comes_late]() -> std::string {
        if (r == 0) std::this_thread::sleep_for(rank_0_comes_late);
        auto env = env_;
        env.rank = r;
        try {
          ServerHandle server;
          auto store = open_store(env, "env://", Deadline::after(60s), server, variables_);
          store->set(std::to_string(r), "here");
          EXPECT_EQ(store->get(std::to_string(1 - r), soon()), "here");
        } catch (const Error& error) {
          return std::string(error.kind()) + ": " + error.what();
        }
        return "";
      }));
    return {ranks[0].get(), ranks[1].get()};
  }
  const std::vector<std::string> nothing_ = {"", ""};

  Log log_;
  PrivateFolder folder_;
  RankEnv env_;
  net::Getenv variables_;
};

}  // namespace

TEST_F(rendezvous_squatter, the_job_starts_whatever_the_stranger_at_the_first_port_does) {
  for (const auto& [name, serve] : kSquatters) {
    SCOPED_TRACE(name);
    auto taken = take_ports(1);
    Squatter squatter(std::move(taken[0]), serve);
    auto start = Clock::now();
    EXPECT_EQ(meet(), nothing_);
    EXPECT_GE(squatter.knocks(), 1);
    EXPECT_LT(seconds_since(start), 15);
  }
}

TEST_F(rendezvous_squatter, the_job_starts_among_seven_strangers_though_rank_0_comes_late) {
  auto taken = take_ports(7);
  std::vector<std::unique_ptr<Squatter>> squatters;
  for (const char* name :
       {"silent", "garbage", "a web server", "a byte now and then", "says that our secret is wrong",
        "says that it has no secret", "claims to have the secret"})
    squatters.push_back(
        std::make_unique<Squatter>(std::move(taken[squatters.size()]), kSquatters.at(name)));
  auto start = Clock::now();
  EXPECT_EQ(meet(2s), nothing_);
  EXPECT_LT(seconds_since(start), 30);
}

TEST_F(rendezvous_squatter, who_passes_us_on_to_the_store_is_passed_over_and_named) {
  auto taken = take_ports(1);
  Squatter squatter(std::move(taken[0]), [&](net::Socket& client, const auto& stop) {
    relay(client, local(port(2)), stop);
  });
  EXPECT_EQ(meet(), nothing_);
  EXPECT_GE(squatter.knocks(), 1);
  EXPECT_TRUE(has(log_.text(), "a stranger at tcp://127.0.0.1:" + std::to_string(port(1))))
      << log_.text();
  // The rank speaks with the store itself.
  StoreServer server({with(kSecret)}, local(port(2)));
  auto found = detail::find_job_store("127.0.0.1", {port(1), port(8)}, with(kSecret), soon());
  EXPECT_EQ(found.at.address.port, port(2));
}

TEST_F(rendezvous_squatter, a_forwarded_port_is_no_stranger) {
  // As a container's published port, or an ssh tunnel; and one within it that only the forwarder
  // reaches.
  for (bool within : {false, true}) {
    auto taken = take_ports(1);
    auto at = within ? net::Endpoint::tcp({"127.0.0.2", static_cast<uint16_t>(port(3))})
                     : net::Endpoint::tcp({"127.0.0.1", 0});
    StoreServer server({with(kSecret)}, at);
    Squatter forwarder(std::move(taken[0]), [&](net::Socket& client, const auto& stop) {
      relay(client, server.endpoints()[0], stop);
    });
    auto found = detail::find_job_store("127.0.0.1", {port(1), port(8)}, with(kSecret), soon());
    EXPECT_EQ(found.at.address.port, port(1));
    TcpStore store(std::move(found.socket), std::move(found.session), found.at, with(kSecret));
    EXPECT_EQ(store.add("n", 1), 1);
  }
}

TEST_F(rendezvous_squatter, two_users_with_one_master_port_and_no_job_id_each_meet_their_own) {
  auto taken = take_ports(1);
  env_.job_id.clear();
  auto theirs = "/0@" + std::to_string(env_.master_port);
  taken.clear();
  StoreServer other({with("another user's secret, as long", theirs)}, local(port(1)));
  EXPECT_EQ(meet(), nothing_);
}

TEST_F(rendezvous_squatter, another_user_behind_the_socket_name_is_named_and_not_believed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  env_.local_world_size = 2;
  auto meeting = env_.job_id + "/0@" + std::to_string(env_.master_port);
  auto at = unix_store_endpoint(meeting);
  Child other([&](const Child::Parent& parent) {
    if (::setresuid(65534, 65534, 65534) != 0) return;
    net::Listener listener(at);
    parent.tell("there");
    parent.hear();
  });
  ASSERT_EQ(other.hear(), "there");
  auto errors = meet();
  EXPECT_TRUE(has(errors[0], "ResourceError") && has(errors[0], "of user 65534")) << errors[0];
  EXPECT_TRUE(has(errors[1], "UsageError") && has(errors[1], "user 65534")) << errors[1];
}

TEST_F(rendezvous_squatter, a_rank_that_finds_no_store_says_how_many_ports_others_hold) {
  auto taken = take_ports(2);
  std::vector<std::unique_ptr<Squatter>> squatters;
  for (auto& one : taken)
    squatters.push_back(std::make_unique<Squatter>(std::move(one), kSquatters.at("a web server")));
  try {
    detail::find_job_store("127.0.0.1", {port(1), port(8)}, with(kSecret), Deadline::after(3s));
    FAIL();
  } catch (const Timeout& error) {
    EXPECT_TRUE(has(error.what(), "2 of the ports are held by others")) << error.what();
    EXPECT_TRUE(has(error.what(), "MASTER_ADDR")) << error.what();
  }
}

TEST_F(rendezvous_squatter, a_refusal_is_believed_at_last_and_at_once_where_there_is_one_port) {
  auto taken = take_ports(1);
  Squatter squatter(std::move(taken[0]), kSquatters.at("says that our secret is wrong"));
  EXPECT_THROW(detail::find_job_store("127.0.0.1", {port(1), port(8)}, with(kSecret),
                                      Deadline::after(700ms)),
               UsageError);
  auto start = Clock::now();
  EXPECT_THROW(
      detail::find_job_store("127.0.0.1", {port(1), port(1)}, with(kSecret), Deadline::after(60s)),
      UsageError);
  EXPECT_LT(seconds_since(start), 10);
}

}  // namespace squatter_test
