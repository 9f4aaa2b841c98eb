// SPDX-License-Identifier: Apache-2.0
// Thousands of connections that say nothing: they cost strangers theirs, and no rank its place.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>

#include "tests/store/child.h"
#include "tests/store/strangers.h"
#include "tests/support/refusals.h"
#include "trireme/base/log.h"
#include "trireme/net/address.h"
#include "trireme/net/connect.h"
#include "trireme/net/server/strangers.h"
#include "trireme/rendezvous/join.h"

namespace flood_test {

using namespace trireme;
using namespace trireme::testing;
using namespace std::chrono_literals;

namespace {

using trireme::testing::has;

constexpr int kChildren = 5, kEach = 900;  // below everybody's limit of descriptors
constexpr double kSeconds = 15;            // three times the five in which a rank gets in

UniqueFd connect_now(const net::Endpoint& at) {
  auto to = net::resolve(at.address).front();
  UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd) ::connect(fd.get(), to.get(), to.length);
  return fd;
}

/// kChildren × kEach connections from processes of their own, which say nothing. Each that the
/// store closes is opened again, for as long as this lives or a minute.
class Flood {
 public:
  /// Before the test starts threads.
  Flood() {
    for (int i = 0; i < kChildren; ++i)
      children_.push_back(
          std::make_unique<Child>([](const Child::Parent& parent) { run(parent); }));
  }
  /// Returns when all are open.
  void begin(const net::Endpoint& at) {
    for (auto& child : children_) child->tell(at.text());
    for (auto& child : children_) EXPECT_EQ(child->hear(), "open");
  }

 private:
  static void run(const Child::Parent& parent) {
    auto at = net::Endpoint::parse(parent.hear());
    std::vector<UniqueFd> open(kEach);
    for (auto& fd : open) fd = connect_now(at);
    parent.tell("open");
    auto end = Deadline::after(60s);
    while (!end.expired()) {
      std::vector<pollfd> polls;
      for (auto& fd : open) polls.push_back({fd.get(), POLLRDHUP, 0});
      ::poll(polls.data(), polls.size(), 20);
      for (size_t i = 0; i < open.size(); ++i)
        if (polls[i].revents) {
          open[i].reset();
          open[i] = connect_now(at);
        }
    }
  }
  std::vector<std::unique_ptr<Child>> children_;
};

class QuietLog {
 public:
  QuietLog() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~QuietLog() { set_log_sink({}); }
};

/// Seconds of CPU that this process has used.
double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

TEST(store_flood, the_refused_give_way_first_then_the_silent_then_the_oldest) {
  using Standing = net::Strangers::Standing;
  net::Strangers strangers;
  EXPECT_FALSE(strangers.first_to_go());
  for (uint64_t id : {1, 2, 3, 4}) strangers.put(id, Standing::silent);
  strangers.put(1, Standing::greeted);
  strangers.put(4, Standing::refused);
  EXPECT_EQ(strangers.size(), 4u);
  for (uint64_t id : {4, 2, 3, 1}) {
    EXPECT_EQ(strangers.first_to_go(), id);
    strangers.remove(id);
  }
  EXPECT_EQ(strangers.size(), 0u);
  EXPECT_EQ(StoreServer::most_strangers(1), 64u);
  EXPECT_EQ(StoreServer::most_strangers(1000), 4000u);
}

TEST(store_flood, a_late_rank_gets_in_through_4500_idle_connections) {
  Flood flood;
  QuietLog log;
  StoreServer server({with(kSecret)});
  flood.begin(server.endpoints()[0]);
  for (int i = 0; i < 3; ++i) {
    auto start = Clock::now();
    auto late = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
    EXPECT_GT(late->add("n", 1), 0);
    EXPECT_LT(seconds_since(start), kSeconds);
  }
  EXPECT_GT(server.strangers(), 1000u);
}

TEST(store_flood, ranks_that_are_in_are_not_disturbed) {
  Flood flood;
  QuietLog log;
  StoreServer server({with(kSecret)});
  RealClient real(server.endpoints()[0]);
  flood.begin(server.endpoints()[0]);
  std::this_thread::sleep_for(1s);  // of the flood
  EXPECT_EQ(real.stop(), "");
  EXPECT_GT(server.strangers(), 1000u);
}

TEST(store_flood, at_most_64_strangers_are_held_and_the_oldest_go) {
  QuietLog log;
  StoreServer server({with(kSecret)});
  std::vector<net::Socket> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(net::connect(server.endpoints()[0], soon()));
  auto late = TcpStore::connect(server.endpoints()[0], with(kSecret), soon());
  EXPECT_EQ(late->add("n", 1), 1);
  // At once, not when their time is over.
  for (int i = 0; i < 200 - 64; ++i) EXPECT_TRUE(closes(idle[i], Deadline::after(3s))) << i;
  EXPECT_FALSE(closes(idle.back(), Deadline::after(10ms)));
  EXPECT_GE(server.strangers(), 200u - 64);
}

TEST(store_flood, a_rank_that_has_said_hello_is_not_pushed_out_by_those_who_say_nothing) {
  QuietLog log;
  StoreServer server({with(kSecret)});
  auto credentials = with(kSecret);
  // By hand, with the flood between the hello and the proof.
  auto slow = net::connect(server.endpoints()[0], soon());
  auto hello =
      net::encode_frame(1, net::Writer().u8(1).string("job").raw(std::string(32, 'c')).bytes());
  slow.send_all(hello, soon());
  auto challenge = net::recv_frame(slow, net::kMaxPayloadBefore, soon());
  std::vector<net::Socket> idle;
  for (int i = 0; i < 500; ++i) idle.push_back(net::connect(server.endpoints()[0], soon()));
  for (int i = 0; i < 400; ++i) EXPECT_TRUE(closes(idle[i], soon()));
  net::HandshakeKeys keys(credentials, hello, net::encode_frame(challenge.type, challenge.payload));
  net::send_frame(slow, 3, keys.client_proof, soon());
  EXPECT_EQ(net::recv_frame(slow, net::kMaxPayloadBefore, soon()),
            (net::Frame{4, keys.server_proof}));
}

TEST(store_flood, a_join_that_failed_says_how_many_strangers_came) {
  QuietLog log;
  StoreServer server({with(kSecret)});
  for (int i = 0; i < 7; ++i) {
    auto probe = net::connect(server.endpoints()[0], soon());
    probe.send_all("GET / HTTP/1.1\r\n\r\n", soon());
    EXPECT_TRUE(closes(probe, soon()));
  }
  while (server.strangers() < 7) std::this_thread::yield();
  auto store = server.local_store();
  detail::take_seat(*store, 0, 2);
  try {
    detail::wait_for_world(*store, 0, 2, Deadline::after(50ms),
                           [&] { return server.turned_away(); });
    FAIL();
  } catch (const Timeout& error) {
    EXPECT_TRUE(has(error.what(), "missing: rank 1")) << error.what();
    EXPECT_TRUE(has(error.what(), "7 connections to the store came from strangers"))
        << error.what();
    EXPECT_TRUE(has(error.what(), "127.0.0.1")) << error.what();
  }
}

TEST(store_flood, few_descriptors_are_kept_for_ranks_and_nothing_spins) {
  Child serving([](const Child::Parent& parent) {
    set_log_sink([](LogLevel, std::string_view) {});
    rlimit few{40, 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
    StoreServer server({with(kSecret)});
    parent.tell(server.endpoints()[0].text());
    auto cpu = [&] {
      double before = cpu_seconds();
      std::this_thread::sleep_for(1s);
      return cpu_seconds() - before;
    };
    parent.hear();  // the crowd is here
    parent.tell(std::to_string(cpu()));
    // Now none is left for newcomers, and no stranger that could make room.
    parent.hear();
    std::vector<UniqueFd> taken;
    while (true) {
      UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!fd) break;
      taken.push_back(std::move(fd));
    }
    parent.tell("taken");
    parent.hear();
    parent.tell(std::to_string(cpu()));
    parent.hear();
  });
  auto at = net::Endpoint::parse(serving.hear());
  auto in = TcpStore::connect(at, with(kSecret), soon());
  std::vector<net::Socket> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(net::connect(at, soon()));
  auto start = Clock::now();
  auto late = TcpStore::connect(at, with(kSecret), soon());
  EXPECT_EQ(late->add("n", 1), 1);
  EXPECT_LT(seconds_since(start), kSeconds);
  serving.tell("a crowd");
  EXPECT_LT(std::stod(serving.hear()), 0.5);
  crowd.clear();
  std::this_thread::sleep_for(200ms);  // until the store has seen them go
  serving.tell("take all");
  EXPECT_EQ(serving.hear(), "taken");
  for (int i = 0; i < 20; ++i) crowd.push_back(net::connect(at, soon()));
  serving.tell("a crowd");
  EXPECT_LT(std::stod(serving.hear()), 0.5);
  EXPECT_EQ(in->add("n", 1), 2);
  serving.tell("end");
  EXPECT_EQ(serving.wait(), 0);
}

}  // namespace flood_test
