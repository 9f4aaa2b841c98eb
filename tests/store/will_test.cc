// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/store/child.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/net/connect.h"
#include "trireme/net/secret.h"
#include "trireme/store/file/file_store.h"
#include "trireme/store/protocol.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"
#include "trireme/store/unix_store.h"

namespace will_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::Child;

namespace {

Deadline soon() { return Deadline::after(10s); }
const net::Credentials kJob{"job", {}};
// A will is carried out within a second; a loaded machine may take three.
constexpr double kSecond = 3;

std::unique_ptr<Store> connect(const std::string& endpoint) {
  constexpr std::string_view kFile = "file:";
  if (endpoint.starts_with(kFile))
    return FileStore::join(endpoint.substr(kFile.size()), {"job", 0, 2, 1}, soon());
  return TcpStore::connect(net::Endpoint::parse(endpoint), kJob, soon());
}

/// Goes to the store that it is told of, leaves a will and waits.
void leave_a_will(const Child::Parent& parent) {
  auto store = connect(parent.hear());
  store->set_will("rank/1/is", "lost");
  parent.tell("ready");
  parent.hear();
}

class store_will : public ::testing::TestWithParam<const char*> {
 protected:
  /// Called once the test has forked what it forks: it starts a thread.
  void open() {
    if (GetParam() == std::string("file")) {
      where_ = "file:" + (folder_ / "store");
      store_ = FileStore::join(folder_ / "store", {"job", 0, 2, 0}, soon());
      return;
    }
    bool is_tcp = GetParam() == std::string("tcp");
    server_ = std::make_unique<StoreServer>(
        StoreServer::Options{kJob},
        is_tcp ? net::Endpoint::tcp({"127.0.0.1", 0}) : unix_store_endpoint(net::random_token()));
    where_ = server_->endpoints()[0].text();
    store_ = server_->local_store();
  }

  PrivateFolder folder_;
  std::string where_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
};

}  // namespace

TEST_P(store_will, a_killed_client_s_will_is_carried_out_within_a_second) {
  for (int round = 0; round < 3; ++round) {
    store_.reset();
    server_.reset();
    Child child(leave_a_will);
    open();
    child.tell(where_);
    ASSERT_EQ(child.hear(), "ready");
    EXPECT_FALSE(store_->check({"rank/1/is"}));
    auto start = Clock::now();
    child.send(SIGKILL);
    EXPECT_EQ(store_->get("rank/1/is", soon()), "lost");
    EXPECT_LT(seconds_since(start), kSecond);
  }
}

TEST_P(store_will, a_stopped_client_is_not_lost) {
  Child child(leave_a_will);
  open();
  child.tell(where_);
  ASSERT_EQ(child.hear(), "ready");
  child.send(SIGSTOP);
  EXPECT_THROW(store_->get("rank/1/is", Deadline::after(500ms)), Timeout);
  child.send(SIGCONT);
  child.tell("end");
  EXPECT_EQ(child.wait(), 0);  // it said goodbye
  EXPECT_FALSE(store_->check({"rank/1/is"}));
}

TEST_P(store_will, leaving_by_exit_without_a_goodbye_is_being_lost) {
  Child child([](const Child::Parent& parent) {
    auto store = connect(parent.hear());
    store->set_will("k", "v");
    ::_exit(0);
  });
  open();
  child.tell(where_);
  EXPECT_EQ(store_->get("k", soon()), "v");
}

TEST_P(store_will, stands_under_the_prefix_of_who_left_it) {
  Child child([](const Child::Parent& parent) {
    PrefixStore store(connect(parent.hear()), "group");
    store.set_will("k", "v");
    ::_exit(0);
  });
  open();
  child.tell(where_);
  EXPECT_EQ(store_->get("group/k", soon()), "v");
}

INSTANTIATE_TEST_SUITE_P(, store_will, ::testing::Values("tcp", "unix", "file"),
                         [](const auto& info) { return info.param; });

TEST(store_wills, one_that_breaks_the_protocol_is_lost_too) {
  StoreServer server({kJob});
  auto socket = net::connect(server.endpoints()[0], soon());
  net::authenticate_as_client(socket, kJob, soon());
  socket.send_all(
      detail::encode(detail::Request{detail::Op::set_will, 0, 0, {"k"}, "v", ""}) + "no frame",
      soon());
  EXPECT_EQ(server.local_store()->get("k", soon()), "v");
}

TEST(store_wills, one_that_leaves_in_the_middle_of_a_wait_is_lost) {
  StoreServer server({kJob});
  auto socket = net::connect(server.endpoints()[0], soon());
  net::authenticate_as_client(socket, kJob, soon());
  socket.send_all(
      detail::encode(detail::Request{detail::Op::set_will, 0, 0, {"k"}, "v", ""}) +
          detail::encode(detail::Request{detail::Op::get, detail::kNoTimeout, 0, {"x"}, "", ""}),
      soon());
  EXPECT_FALSE(server.local_store()->check({"k"}));
  socket.close();
  EXPECT_EQ(server.local_store()->get("k", soon()), "v");
}

TEST(store_wills, waiters_at_other_connections_are_woken_by_a_will) {
  StoreServer server({kJob});
  auto waiting = std::async(std::launch::async, [&] {
    auto store = TcpStore::connect(server.endpoints()[0], kJob, soon());
    store->set("waits", "1");
    return store->get("k", soon());
  });
  auto socket = net::connect(server.endpoints()[0], soon());
  net::authenticate_as_client(socket, kJob, soon());
  socket.send_all(detail::encode(detail::Request{detail::Op::set_will, 0, 0, {"k"}, "v", ""}),
                  soon());
  server.local_store()->get("waits", soon());
  auto start = Clock::now();
  socket.close();
  EXPECT_EQ(waiting.get(), "v");
  EXPECT_LT(seconds_since(start), kSecond);
}

TEST(store_wills, find_their_room_in_a_full_table) {
  StoreServer::Options options{kJob};
  options.max_bytes = 10'000;
  StoreServer server(std::move(options));
  auto local = server.local_store();
  auto store = TcpStore::connect(server.endpoints()[0], kJob, soon());
  EXPECT_THROW(store->set_will("k", std::string(20'000, 'x')), ResourceError);
  auto socket = net::connect(server.endpoints()[0], soon());
  net::authenticate_as_client(socket, kJob, soon());
  std::string value(4000, 'v');
  socket.send_all(detail::encode(detail::Request{detail::Op::set_will, 0, 0, {"k"}, value, ""}),
                  soon());
  detail::decode_reply(net::recv_frame(socket, net::kMaxPayloadAfter, soon()));
  EXPECT_THROW(store->set("large", std::string(6000, 'x')), ResourceError);  // the room is kept
  store->set("large", std::string(5500, 'x'));
  socket.close();
  EXPECT_EQ(local->get("k", soon()), value);
  store->delete_key("k");
  store->set_will("k", value);
  store->clear_will();
  store->set("k", value);  // given back
}

TEST(store_wills, a_server_that_stops_carries_out_none) {
  auto server = std::make_unique<StoreServer>(StoreServer::Options{kJob});
  auto local = server->local_store();
  auto store = TcpStore::connect(server->endpoints()[0], kJob, soon());
  store->set_will("k", "v");
  server.reset();
  EXPECT_FALSE(local->check({"k"}));
}

TEST(store_wills, a_killed_server_is_known_at_once_by_who_waits_and_by_who_calls) {
  Child serving([](const Child::Parent& parent) {
    StoreServer server({kJob});
    parent.tell(server.endpoints()[0].text());
    parent.hear();
  });
  auto at = net::Endpoint::parse(serving.hear());
  auto store = TcpStore::connect(at, kJob, soon());
  auto idle = TcpStore::connect(at, kJob, soon());
  auto lost = std::async(std::launch::async, [&] {
    EXPECT_THROW(store->get("never", Deadline::never()), PeerLost);
    return Clock::now();
  });
  while (idle->add("n", 1) < 100) {
  }
  auto start = Clock::now();
  serving.kill();
  EXPECT_LT(std::chrono::duration<double>(lost.get() - start).count(), kSecond);
  EXPECT_THROW(idle->add("n", 1), PeerLost);
  EXPECT_LT(seconds_since(start), kSecond);
}

}  // namespace will_test
