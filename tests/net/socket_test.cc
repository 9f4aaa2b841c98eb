// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <future>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/net/connect.h"
#include "trireme/net/fd_passing.h"
#include "trireme/net/listener.h"
#include "trireme/net/secret.h"

namespace socket_test {

using namespace trireme;
using namespace trireme::net;
using namespace std::chrono_literals;

namespace {

Deadline soon() { return Deadline::after(10s); }

std::pair<Socket, Socket> pair_of() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  return {Socket(UniqueFd(fds[0]), "left"), Socket(UniqueFd(fds[1]), "right")};
}

Endpoint private_name() { return Endpoint::unix_abstract("trireme-test-" + random_token()); }

}  // namespace

TEST(net_socket, carries_more_than_the_kernel_buffers_both_ways) {
  Listener listener = Listener::loopback();
  ASSERT_NE(listener.endpoint().address.port, 0);
  std::string bytes(8 << 20, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 24);
  auto server = std::async(std::launch::async, [&] {
    Socket s = listener.accept(soon());
    std::string got(bytes.size(), '\0');
    s.recv_all(got.data(), got.size(), soon());
    s.send_all(got, soon());
  });
  Socket client = connect(listener.endpoint(), soon());
  client.send_all(bytes, soon());
  std::string back(bytes.size(), '\0');
  client.recv_all(back.data(), back.size(), soon());
  server.get();
  EXPECT_TRUE(back == bytes);
}

TEST(net_socket, receiving_ends_at_the_deadline) {
  auto [a, b] = pair_of();
  char byte;
  auto start = Clock::now();
  EXPECT_THROW(a.recv_all(&byte, 1, Deadline::after(30ms)), Timeout);
  EXPECT_GE(seconds_since(start), 0.03);
  EXPECT_LT(seconds_since(start), 5);
}

TEST(net_socket, sending_ends_at_the_deadline) {
  auto [a, b] = pair_of();
  EXPECT_THROW(a.send_all(std::string(64 << 20, 'x'), Deadline::after(30ms)), Timeout);
}

TEST(net_socket, a_peer_that_closed_is_lost_and_raises_no_signal) {
  auto [a, b] = pair_of();
  b.close();
  char byte;
  EXPECT_THROW(a.recv_all(&byte, 1, soon()), PeerLost);
  EXPECT_THROW(a.send_all("x", soon()), PeerLost);  // SIGPIPE would end this program
}

TEST(net_socket, descriptors_are_closed_on_exec_and_do_not_block) {
  Listener listener = Listener::loopback();
  Socket client = connect(listener.endpoint(), soon());
  Socket server = listener.accept(soon());
  for (int fd : {listener.fd(), client.fd(), server.fd()}) {
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(::fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
}

TEST(net_socket, listens_at_the_named_interface_only) {
  Listener listener = Listener::loopback();
  EXPECT_EQ(listener.endpoint().address.host, "127.0.0.1");
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  SocketAddress at{bound, size};
  EXPECT_EQ(at.text(), listener.endpoint().address.text());
}

TEST(net_socket, a_taken_port_is_named_with_what_to_do) {
  Listener first = Listener::loopback();
  try {
    Listener second(first.endpoint());
    FAIL();
  } catch (const ResourceError& error) {
    std::string what = error.what();
    EXPECT_NE(what.find("port in use"), std::string::npos) << what;
    EXPECT_NE(what.find(first.endpoint().address.text()), std::string::npos) << what;
    EXPECT_NE(what.find("choose another"), std::string::npos) << what;
  }
  EXPECT_FALSE(Listener::if_free(first.endpoint()));
  auto at = first.endpoint();
  first.close();
  EXPECT_TRUE(Listener::if_free(at));
}

TEST(net_socket, an_address_of_another_host_is_named) {
  try {
    Listener at(Endpoint::tcp({"192.0.2.1", 0}));  // TEST-NET-1: nobody's
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("192.0.2.1"), std::string::npos) << error.what();
  }
}

TEST(net_socket, a_port_is_free_again_as_soon_as_its_server_left) {
  Listener first = Listener::loopback();
  auto at = first.endpoint();
  Socket client = connect(at, soon());
  Socket server = first.accept(soon());
  server.close();  // closes first: its side goes through TIME_WAIT
  client.close();
  first.close();
  EXPECT_NO_THROW(Listener again(at));
}

TEST(net_socket, knocks_until_a_late_server_listens) {
  for (auto at : {private_name(), Listener::loopback().endpoint()}) {
    std::promise<void> knocked;
    auto client = std::async(std::launch::async, [&] {
      bool first = true;
      return connect(at, soon(), [&](const std::string&) {
        if (std::exchange(first, false)) knocked.set_value();
      });
    });
    knocked.get_future().wait();  // nobody was there
    Listener late(at);
    Socket server = late.accept(soon());
    Socket socket = client.get();
    server.send_all("x", soon());
    char byte = 0;
    socket.recv_all(&byte, 1, soon());
    EXPECT_EQ(byte, 'x');
  }
}

TEST(net_socket, names_whom_it_could_not_reach) {
  auto at = Listener::loopback().endpoint();
  try {
    connect(at, Deadline::after(50ms));
    FAIL();
  } catch (const Timeout& error) {
    EXPECT_NE(std::string(error.what()).find(at.text()), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("refused"), std::string::npos) << error.what();
  }
}

TEST(net_socket, an_abstract_name_has_one_listener_and_vanishes_with_it) {
  auto at = private_name();
  {
    Listener first(at);
    EXPECT_THROW(Listener second(at), ResourceError);
    Socket client = connect(at, soon());
    Socket server = first.accept(soon());
    auto who = peer_credentials(client);
    EXPECT_EQ(who.pid, ::getpid());
    EXPECT_EQ(who.uid, ::geteuid());
    EXPECT_EQ(peer_credentials(server).pid, ::getpid());
    EXPECT_NO_THROW(check_same_user(server));
  }
  std::string why;
  EXPECT_FALSE(try_connect(at, soon(), &why));
  EXPECT_NE(why, "");
}

TEST(net_socket, hands_over_open_files) {
  auto [a, b] = pair_of();
  UniqueFd one(::memfd_create("one", MFD_CLOEXEC));
  UniqueFd two(::memfd_create("two", MFD_CLOEXEC));
  ASSERT_EQ(::write(one.get(), "first", 5), 5);
  std::vector<int> fds = {one.get(), two.get()};
  send_fds(a, fds, "hello", soon());
  a.send_all("tail", soon());
  auto got = recv_fds(b, 2, 5, soon());
  EXPECT_EQ(got.payload, "hello");
  ASSERT_EQ(got.fds.size(), 2u);
  EXPECT_TRUE(::fcntl(got.fds[0].get(), F_GETFD) & FD_CLOEXEC);
  struct stat here {
  }, there{};
  ::fstat(one.get(), &here);
  ::fstat(got.fds[0].get(), &there);
  EXPECT_EQ(here.st_ino, there.st_ino);
  char tail[4];
  b.recv_all(tail, 4, soon());
  EXPECT_EQ(std::string(tail, 4), "tail");
}

TEST(net_socket, more_open_files_than_due_are_refused_and_closed) {
  auto [a, b] = pair_of();
  std::vector<int> fds = {0, 0, 0};
  auto open_files = [] {
    int n = 0;
    for (int fd = 0; fd < 256; ++fd) n += ::fcntl(fd, F_GETFD) >= 0;
    return n;
  };
  int before = open_files();
  send_fds(a, fds, "x", soon());
  EXPECT_THROW(recv_fds(b, 2, 1, soon()), Corrupt);
  EXPECT_EQ(open_files(), before);
  EXPECT_THROW(recv_fds(b, 2, 1, Deadline::after(20ms)), Timeout);
  EXPECT_THROW(send_fds(a, fds, "", soon()), UsageError);
  a.close();
  EXPECT_THROW(recv_fds(b, 2, 1, soon()), PeerLost);
}

}  // namespace socket_test
