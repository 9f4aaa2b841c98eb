// SPDX-License-Identifier: Apache-2.0
// A link that is cut, between two network namespaces: the kernel says nothing, only silence tells.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <future>

#include "tests/store/child.h"
#include "tests/support/fault_times.h"
#include "trireme/base/check.h"
#include "trireme/net/connect.h"
#include "trireme/store/protocol.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace link_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::Child;

namespace {

// A cut is known within 4 s, and this tolerates three times a promise of five.
constexpr double kCutKnown = 15;
constexpr size_t kLarge = 12 << 20;  // more than two kernels buffer
const net::Credentials kJob{"job", {}};

Deadline soon() { return Deadline::after(30s); }

bool shell(const std::string& command) {
  return std::system(("exec >/dev/null 2>&1; " + command).c_str()) == 0;
}

void in_namespace_of(const std::string& pid) {
  UniqueFd fd(::open(("/proc/" + pid + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC));
  if (::setns(fd.get(), CLONE_NEWNET) != 0) fail<Error>("setns: {}", errno_text());
}

std::unique_ptr<TcpStore> connect(const std::string& endpoint) {
  return TcpStore::connect(net::Endpoint::parse(endpoint), kJob, soon());
}

std::string seconds(Clock::time_point since) { return fmt::format("{:.3f}", seconds_since(since)); }

/// Serves on the first host and says when each will came, counted from the cut.
void serve(const Child::Parent& parent) {
  if (::unshare(CLONE_NEWNET) != 0) return parent.tell("no namespaces: " + errno_text());
  parent.tell("ready");
  const auto other = parent.hear();
  if (!shell("ip link set lo up && ip link add va type veth peer name vb netns " + other +
             " && ip addr add 10.213.0.1/24 dev va && ip link set va up"))
    return parent.tell("no veth pair here");
  StoreServer server({kJob}, net::Endpoint::tcp({"10.213.0.1", 0}));
  parent.tell(server.endpoints()[0].text());
  parent.hear();  // the link is cut
  auto start = Clock::now();
  auto store = server.local_store();
  store->set("go", std::string(100, 'x'));  // an answer into the void for whoever waits
  store->get("idle is", soon());
  parent.tell(seconds(start));
  store->get("waiter is", soon());
  parent.tell(seconds(start));
  // Longer than any limit of silence: those who are stopped have their connections yet.
  try {
    store->get("full is", Deadline::after(2s));
  } catch (const Timeout&) {
  }
  auto stopped = store->missing({"stopped is", "full is"}).size();
  parent.tell(std::to_string(stopped) + " stopped clients are in");
  parent.hear();
}

/// On the second host: one client that is idle, one that waits for a key; then cuts its own link.
void be_cut_off(const Child::Parent& parent) {
  if (::unshare(CLONE_NEWNET) != 0) return parent.tell("no namespaces: " + errno_text());
  parent.tell("ready");
  auto at = parent.hear();
  if (!shell("ip link set lo up && ip addr add 10.213.0.2/24 dev vb && ip link set vb up"))
    return parent.tell("no veth pair here");
  auto idle = connect(at), waiter = connect(at);
  idle->set_will("idle is", "lost");
  waiter->set_will("waiter is", "lost");
  auto lost = std::async(std::launch::async, [&] {
    try {
      waiter->get("go", Deadline::never());
    } catch (const PeerLost&) {
    }
    return Clock::now();
  });
  parent.tell("in");
  parent.hear();
  shell("ip link set vb down");
  auto start = Clock::now();
  parent.tell("cut");
  parent.tell(fmt::format("{:.3f}", std::chrono::duration<double>(lost.get() - start).count()));
}

/// On the first host: leaves a will, and is stopped by the test; `full` in the middle of a reply
/// that does not fit into its window.
auto be_stopped(bool full) {
  return [full](const Child::Parent& parent) {
    in_namespace_of(parent.hear());
    auto at = net::Endpoint::parse(parent.hear());
    auto socket = net::connect(at, soon());
    net::authenticate_as_client(socket, kJob, soon());
    auto call = [&](const detail::Request& request) {
      socket.send_all(detail::encode(request), soon());
    };
    auto reply = [&] {
      return detail::decode_reply(net::recv_frame(socket, net::kMaxPayloadAfter, soon()));
    };
    call({detail::Op::set_will, 0, 0, {full ? "full is" : "stopped is"}, "lost", ""});
    reply();
    call({detail::Op::set, 0, 0, {"large"}, std::string(kLarge, 'x'), ""});
    reply();
    if (full) call({detail::Op::try_get, 0, 0, {"large"}, "", ""});
    parent.tell("in");
    ::raise(SIGSTOP);
    if (!full) call({detail::Op::try_get, 0, 0, {"large"}, "", ""});
    parent.tell(reply().value.size() == kLarge ? "whole" : "another value");
  };
}

}  // namespace

TEST(store_link, a_cut_is_known_in_seconds_and_a_stopped_client_is_not_a_cut) {
  Child serving(serve), far(be_cut_off), stopped(be_stopped(false)), full(be_stopped(true));
  for (const auto* child : {&serving, &far}) {
    auto said = child->hear();
    if (said.find("no namespaces: ") == 0) GTEST_SKIP() << said;
    ASSERT_EQ(said, "ready");
  }
  serving.tell(std::to_string(far.pid()));
  auto at = serving.hear();
  if (at == "no veth pair here") GTEST_SKIP() << at;
  ASSERT_EQ(at.find("tcp://"), 0u) << at;
  for (const auto* child : {&stopped, &full}) {
    child->tell(std::to_string(serving.pid()));
    child->tell(at);
    ASSERT_EQ(child->hear(), "in");
  }
  far.tell(at);
  auto in = far.hear();
  if (in == "no veth pair here") GTEST_SKIP() << in;
  ASSERT_EQ(in, "in");

  far.tell("cut");
  ASSERT_EQ(far.hear(), "cut");
  serving.tell("cut");
  auto idle = serving.hear(), waiter = serving.hear(), other_end = far.hear();
  RecordProperty("idle client known after s", idle);
  RecordProperty("waiting client known after s", waiter);
  RecordProperty("server known lost after s", other_end);
  std::printf("known after: idle %s s, with a reply on its way %s s, at the other end %s s\n",
              idle.c_str(), waiter.c_str(), other_end.c_str());
  for (const std::string& known : {idle, waiter, other_end})
    trireme::testing::fault_took("silent host", std::stod(known));
  EXPECT_LT(std::stod(idle), kCutKnown);
  EXPECT_LT(std::stod(waiter), kCutKnown);
  EXPECT_LT(std::stod(other_end), kCutKnown);
  EXPECT_EQ(serving.hear(), "2 stopped clients are in");
  for (const auto* child : {&stopped, &full}) {
    child->send(SIGCONT);
    EXPECT_EQ(child->hear(), "whole");
  }
}

}  // namespace link_test
