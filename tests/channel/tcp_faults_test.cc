// SPDX-License-Identifier: Apache-2.0
// Peers that die, read nothing, or are cut off.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <cstdlib>

#include "tests/channel/tcp_workers.h"
#include "tests/store/child.h"
#include "tests/support/memory_limit.h"
#include "tests/support/processes.h"
#include "tests/support/refusals.h"
#include "tests/support/sanitized.h"
#include "trireme/base/error.h"

namespace trireme::channel::tcp_faults_test {

using namespace tcp;

namespace {

using trireme::testing::Child;
using trireme::testing::eventually;
using trireme::testing::has;
using trireme::testing::in_time;
using trireme::testing::Listening;
using trireme::testing::pattern;
using trireme::testing::Worker;
using namespace std::chrono_literals;

constexpr double kSeconds = 15;  // three times the five in which a fault is to be known

/// In a process of its own: a worker that does what it is told, until it is killed.
void be_a_worker(const Child::Parent& parent) {
  Worker worker(Worker::options("b"), false);
  parent.tell(worker.hub->address());
  const std::string what = parent.hear();
  while (worker.channels() == 0) worker.hub->serve(Deadline::after(100ms));
  if (what == "send") {
    worker.accepted()->send({"much", {pattern(uint64_t{64} << 20, 1)}});
    // As much as fits: the other end does not take it all before this one is killed.
    for (int i = 0; i < 40; ++i) worker.hub->serve(Deadline::after(5ms));
    parent.tell("sent");
  }
  parent.tell("deaf");
  while (true) ::pause();
}

bool shell(const std::string& command) {
  return std::system(("exec >/dev/null 2>&1; " + command).c_str()) == 0;
}

std::string end_of(Worker& worker, const std::shared_ptr<Listening>& heard) {
  const auto start = Clock::now();
  while (heard->times_closed() == 0 && seconds_since(start) < 2 * kSeconds)
    worker.hub->serve(Deadline::after(100ms));
  return fmt::format("{:.3f} s: {}", seconds_since(start),
                     heard->times_closed() ? heard->end() : "nothing");
}

constexpr const char* kNoNamespaces = "no namespaces here";
constexpr const char* kNoLink = "no veth pair here";

void be_idle_behind_a_link(const Child::Parent& parent) {
  if (::unshare(CLONE_NEWNET) != 0) return parent.tell(kNoNamespaces);
  parent.tell("ready");
  const auto other = parent.hear();
  if (!shell("ip link set lo up && ip link add va type veth peer name vb netns " + other +
             " && ip addr add 10.214.0.1/24 dev va && ip link set va up"))
    return parent.tell(kNoLink);
  auto options = Worker::options("idle");
  options.at = net::Endpoint::tcp({"10.214.0.1", 0});
  Worker worker(std::move(options), false);
  parent.tell(worker.hub->address());
  while (worker.channels() == 0) worker.hub->serve(Deadline::after(100ms));
  parent.tell(end_of(worker, worker.heard()));
}

void send_behind_a_link(const Child::Parent& parent) {
  if (::unshare(CLONE_NEWNET) != 0) return parent.tell(kNoNamespaces);
  parent.tell("ready");
  const auto at = parent.hear();
  if (!shell("ip link set lo up && ip addr add 10.214.0.2/24 dev vb && ip link set vb up"))
    return parent.tell(kNoLink);
  Worker worker(Worker::options("sends"), false);
  auto heard = std::make_shared<Listening>();
  auto to = worker.hub->open(at, {"idle", 1}, heard, in_time());
  parent.tell("in");
  parent.hear();
  shell("ip link set vb down");
  to->send({"into the void", {}});
  parent.tell(end_of(worker, heard));
}

}  // namespace

TEST(channel_tcp_faults,
     a_peer_that_is_killed_while_its_body_comes_is_lost_and_nothing_is_delivered) {
  Child child(be_a_worker);
  Worker a(Worker::options("a"), false);
  auto heard = std::make_shared<Listening>();
  const std::string address = child.hear();
  child.tell("send");
  auto to = a.hub->open(address, {"b", 1}, heard, in_time());
  ASSERT_EQ(child.hear(), "sent");
  child.kill();
  const auto start = Clock::now();
  std::thread serves([&] { a.serve(); });
  const auto why = heard->end();
  EXPECT_LT(seconds_since(start), kSeconds);
  EXPECT_TRUE(has(why, "worker 'b'") && has(why, "is gone")) << why;
  EXPECT_EQ(heard->count(), 0u);
  EXPECT_FALSE(to->send({"", {}}));
  EXPECT_THROW(a.hub->open(address, {"b", 1}, heard, in_time()), PeerLost);
  a.stop();
  a.hub->interrupt();
  serves.join();
}

TEST(channel_tcp_faults, to_a_peer_that_never_reads_sending_never_waits_and_keeps_what_was_posted) {
  Child child(be_a_worker);
  Worker a("a");
  auto heard = std::make_shared<Listening>();
  const std::string address = child.hear();
  child.tell("nothing");
  auto to = a.hub->open(address, {"b", 1}, heard, in_time());
  ASSERT_EQ(child.hear(), "deaf");
  const Body body = pattern(16 << 20, 2);
  const size_t before = trireme::testing::data_bytes();
  double slowest = 0;
  uint64_t posted = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto start = Clock::now();
    Message message{std::string(10'000, 's'), {}};
    if (i % 100 == 0) message.bodies.push_back(body);
    for (const Body& b : message.bodies) posted += b.bytes;
    posted += message.bytes.size();
    ASSERT_TRUE(to->send(std::move(message)));
    slowest = std::max(slowest, seconds_since(start));
  }
  EXPECT_LT(slowest, kSeconds);
  // The kernels of both ends took some; the rest waits here, and a body is kept, not copied.
  EXPECT_GT(to->unsent(), posted / 2);
  EXPECT_LE(to->unsent(), posted);
  if (!trireme::testing::kSanitized) {
    EXPECT_LT(trireme::testing::data_bytes() - before, size_t{100} << 20);
  }
  EXPECT_EQ(heard->times_closed(), 0);
  to->close("enough");
  EXPECT_EQ(heard->end(), "enough");
  EXPECT_TRUE(eventually([&] { return body.data.use_count() == 1; }));
  EXPECT_EQ(to->unsent(), 0u);
}

// Two network namespaces; a link that is cut tells nobody, and a stopped process is no cut.
TEST(channel_tcp_faults, a_link_that_is_cut_is_known_to_who_sends_and_to_who_is_idle) {
  Child idle(be_idle_behind_a_link), sends(send_behind_a_link);
  for (const auto* child : {&idle, &sends}) {
    const auto said = child->hear();
    if (said == kNoNamespaces) GTEST_SKIP() << said;
    ASSERT_EQ(said, "ready");
  }
  idle.tell(std::to_string(sends.pid()));
  const auto at = idle.hear();
  if (at == kNoLink) GTEST_SKIP() << at;
  ASSERT_TRUE(has(at, "tcp://")) << at;
  sends.tell(at);
  const auto in = sends.hear();
  if (in == kNoLink) GTEST_SKIP() << in;
  ASSERT_EQ(in, "in");
  sends.tell("cut");
  for (const auto* child : {&idle, &sends}) {
    const auto said = child->hear();
    ASSERT_TRUE(has(said, "is gone")) << said;
    const double seconds = std::atof(said.c_str());
    EXPECT_LT(seconds, kSeconds) << said;
  }
}

TEST(channel_tcp_faults, where_nobody_serves_opening_times_out_with_what_to_look_at) {
  Worker a("a"), b(Worker::options("b"), false);
  try {
    a.hub->open(b.hub->address(), b.self, std::make_shared<Listening>(), Deadline::after(300ms));
    FAIL() << "it opened";
  } catch (const Timeout& error) {
    EXPECT_TRUE(has(error.what(), "worker 'b'") && has(error.what(), "serve")) << error.what();
  }
}

}  // namespace trireme::channel::tcp_faults_test
