// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/server/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"

namespace trireme::server_test {
namespace {

using namespace net;
using namespace std::chrono_literals;

const Credentials kJob{"job", Secret("0123456789abcdef0123456789abcdef")};
constexpr uint16_t kSay = 200;

Deadline soon() { return Deadline::after(30s); }

/// A server in a thread of its own that says back what it hears; what else it does is a word.
class Echo final : public ServerUser {
 public:
  Echo() {
    set_log_sink([](LogLevel, std::string_view) {});
    std::vector<Listener> listeners;
    listeners.push_back(Listener::loopback());
    server_ = std::make_unique<Server>(loop_, Server::Options{kJob, "echo", 16384, 64, 500ms},
                                       std::move(listeners), *this);
    thread_ = std::thread([this] {
      while (!stop_) {
        loop_.turn(server_->timeout_ms());
        server_->check_limits();
      }
      server_->end();
    });
  }
  ~Echo() override {
    stop_ = true;
    loop_.wake();
    thread_.join();
    set_log_sink({});
  }
  Socket enter(Session* session) {
    auto socket = connect(server_->endpoints()[0], soon());
    *session = authenticate_as_client(socket, kJob, soon());
    return socket;
  }
  static std::string call(Socket& socket, Session& session, const std::string& text) {
    socket.send_all(session.seal(encode_frame(kSay, text)), soon());
    return recv_frame(socket, kMaxPayloadAfter, soon(), &*session.in).payload;
  }

  std::atomic<int> proved_count{0}, closed_count{0};
  std::unique_ptr<Server> server_;
  std::optional<Server::Taken> taken_;  // once `taken` says so
  std::atomic<bool> taken{false};

 private:
  void proved(ServerConnection&) override { ++proved_count; }
  void came(ServerConnection& c, Frame frame) override {
    if (frame.payload == "corrupt") throw Corrupt("nothing that anybody says");
    if (frame.payload == "limit") server_->set_limit(c, Deadline::after(1ms));
    if (frame.payload == "bye") {
      server_->start_closing(c);
      return server_->reply(c, encode_frame(kSay, "bye"));
    }
    if (frame.payload == "take") {
      taken_ = server_->take(c);
      taken = true;
      return;
    }
    server_->reply(c, encode_frame(kSay, frame.payload));
  }
  void closed(ServerConnection&) override { ++closed_count; }

  EventLoop loop_{"an echo"};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

bool ends(Socket& socket) {
  char byte;
  try {
    while (socket.wait_readable(soon()))
      if (const auto n = socket.recv_now(&byte, 1); n && *n == 0) return true;
  } catch (const PeerLost&) {
    return true;
  }
  return false;
}

}  // namespace

TEST(net_server, its_user_hears_who_proved_himself_what_he_says_and_that_he_left) {
  Echo echo;
  {
    Session session;
    auto socket = echo.enter(&session);
    EXPECT_EQ(Echo::call(socket, session, "one"), "one");
    EXPECT_EQ(Echo::call(socket, session, std::string(5 << 20, 'x')).size(), size_t{5} << 20);
    EXPECT_EQ(echo.proved_count, 1);
    EXPECT_EQ(echo.server_->clients(), 1u);
  }
  EXPECT_TRUE(echo.server_->wait_until_clients_left(soon()));
  EXPECT_EQ(echo.closed_count, 1);
  EXPECT_EQ(echo.server_->strangers(), 0u);
}

TEST(net_server, what_its_user_cannot_read_is_refused_with_its_words) {
  Echo echo;
  Session session;
  auto socket = echo.enter(&session);
  socket.send_all(session.seal(encode_frame(kSay, "corrupt")), soon());
  const auto refused = read_refusal(recv_frame(socket, kMaxPayloadAfter, soon(), &*session.in));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->text, "nothing that anybody says");
  EXPECT_TRUE(ends(socket));
  EXPECT_EQ(echo.closed_count, 1);
}

TEST(net_server, a_last_word_goes_out_before_the_end_and_a_limit_ends_who_has_had_his_time) {
  Echo echo;
  Session one, two;
  auto leaves = echo.enter(&one), late = echo.enter(&two);
  EXPECT_EQ(Echo::call(leaves, one, "bye"), "bye");
  EXPECT_TRUE(ends(leaves));
  EXPECT_EQ(Echo::call(late, two, "limit"), "limit");
  EXPECT_TRUE(ends(late));
  EXPECT_EQ(echo.closed_count, 2);
}

TEST(net_server, a_connection_that_is_taken_goes_on_elsewhere_with_its_seals_and_what_has_come) {
  Echo echo;
  Session session;
  auto socket = echo.enter(&session);
  const std::string next = session.seal(encode_frame(kSay, "take"));
  socket.send_all(next + session.seal(encode_frame(kSay, "more")), soon());
  while (!echo.taken) std::this_thread::yield();
  EXPECT_EQ(echo.server_->clients(), 0u);
  EXPECT_EQ(echo.closed_count, 0);
  auto& on = *echo.taken_;
  FrameParser in;
  in.expect_seals(std::move(*on.session.in));
  in.feed(on.early);
  auto frame = in.next(kMaxPayloadAfter);
  while (!frame) {
    char bytes[256];
    ASSERT_TRUE(on.socket.wait_readable(soon()));
    if (const auto n = on.socket.recv_now(bytes, sizeof bytes)) in.feed({bytes, *n});
    frame = in.next(kMaxPayloadAfter);
  }
  EXPECT_EQ(frame->payload, "more");
  on.socket.send_all(on.session.seal(encode_frame(kSay, "from elsewhere")), soon());
  EXPECT_EQ(recv_frame(socket, kMaxPayloadAfter, soon(), &*session.in).payload, "from elsewhere");
}

}  // namespace trireme::server_test
