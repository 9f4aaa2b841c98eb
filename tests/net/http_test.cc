// SPDX-License-Identifier: Apache-2.0
// What answers is a stranger: whatever it says, a request ends, in a bounded time and memory.
#include "trireme/net/http/http.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/answering_server.h"
#include "tests/support/ports.h"
#include "trireme/base/error.h"

namespace trireme::net::http_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnsweringServer;
using testing::http_answer;

class net_http : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_http()) GTEST_SKIP() << "no libcurl";
  }
};

/// What a request to it comes to: "200 BODY", or the kind of the error and its text.
std::string asked(const std::string& endpoint, Duration limit = seconds(5)) try {
  const HttpReply reply = HttpClient().post("http://" + endpoint + "/x", "{}", limit);
  return std::to_string(reply.status) + " " + reply.body;
} catch (const Error& error) {
  return std::string(error.kind()) + " " + error.what();
}
std::string asked(const AnsweringServer& server, Duration limit = seconds(5)) {
  return asked(server.endpoint(), limit);
}

TEST_F(net_http, an_answer_has_its_status_its_body_and_our_address) {
  const AnsweringServer server(http_answer("{\"a\": 1}"));
  HttpClient client;
  for (int i = 0; i < 2; ++i) {  // on a new connection where the first was closed
    const HttpReply reply = client.post("http://" + server.endpoint() + "/v3", "{}", seconds(5));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "{\"a\": 1}");
    EXPECT_EQ(reply.local_host, "127.0.0.1");
  }
}

TEST_F(net_http, a_body_in_chunks_is_put_together) {
  EXPECT_EQ(asked(AnsweringServer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")),
            "200 abcde");
}

TEST_F(net_http, another_status_is_an_answer_and_a_redirect_is_not_followed) {
  const AnsweringServer other(http_answer("there"));
  EXPECT_EQ(asked(AnsweringServer(http_answer("no", "503 Unavailable"))), "503 no");
  const AnsweringServer redirect("HTTP/1.1 302 Found\r\nLocation: http://" + other.endpoint() +
                                 "/\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(asked(redirect), "302 ");
  EXPECT_EQ(other.served(), 0);
}

TEST_F(net_http, nobody_there_is_PeerLost) {
  EXPECT_TRUE(
      asked("127.0.0.1:" + std::to_string(testing::free_tcp_port())).starts_with("PeerLost"));
  EXPECT_TRUE(asked(AnsweringServer("")).starts_with("PeerLost"));
  // In the middle of an answer.
  EXPECT_TRUE(asked(AnsweringServer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"))
                  .starts_with("PeerLost"));
}

TEST_F(net_http, what_is_no_HTTP_or_too_much_is_Corrupt) {
  std::string random;
  for (int i = 0; i < 2000; ++i) random += static_cast<char>(i * 7919 % 251);
  std::string headers = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20000; ++i) headers += "X-Long-" + std::to_string(i) + ": abcdefgh\r\n";
  std::string waits;
  for (int i = 0; i < 20000; ++i) waits += "HTTP/1.1 100 Continue\r\n\r\n";
  const std::string big(HttpClient::kMaxBodyBytes + 1, ' ');
  for (const std::string& bytes :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n"), random, std::string("220 mail.example ESMTP\r\n"),
        headers, waits, http_answer(big),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40001\r\n" + big + "\r\n0\r\n\r\n"})
    EXPECT_TRUE(asked(AnsweringServer(bytes)).starts_with("Corrupt"))
        << bytes.substr(0, 40) << ": " << asked(AnsweringServer(bytes));
}

TEST_F(net_http, a_body_without_end_is_cut_off) {
  size_t sent = 0;
  const AnsweringServer server([&](Socket& socket) {
    socket.send_all("HTTP/1.1 200 OK\r\n\r\n", Deadline::after(seconds(5)));
    const std::string block(size_t{1} << 16, 'x');
    while (sent < size_t{1} << 30) {
      socket.send_all(block, Deadline::after(seconds(5)));
      sent += block.size();
    }
  });
  EXPECT_TRUE(asked(server).starts_with("Corrupt"));
}

TEST_F(net_http, silence_and_slowness_end_at_the_limit) {
  const AnsweringServer* self = nullptr;
  const AnsweringServer slow([&](Socket& socket) {
    const std::string answer = http_answer(std::string(10000, 'x'));
    for (size_t i = 0; i < answer.size() && !self->stopped(); ++i) {
      socket.send_all(answer.substr(i, 1), Deadline::after(seconds(1)));
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  self = &slow;
  const auto start = Clock::now();
  const std::string said = asked(slow, milliseconds(300));
  EXPECT_TRUE(said.starts_with("Timeout")) << said;
  EXPECT_LT(Clock::now() - start, seconds(5));
}

TEST_F(net_http, a_request_can_be_given_up) {
  const Listener silent = Listener::loopback();  // its backlog takes the connection
  const auto start = Clock::now();
  EXPECT_THROW(HttpClient().post("http://" + silent.endpoint().address.text(), "{}", seconds(60),
                                 [] { return true; }),
               Aborted);
  EXPECT_LT(Clock::now() - start, seconds(10));
}

TEST_F(net_http, no_proxy_of_the_environment_is_asked) {
  const AnsweringServer proxy(http_answer("proxy")), server(http_answer("server"));
  ::setenv("http_proxy", ("http://" + proxy.endpoint()).c_str(), 1);
  EXPECT_EQ(asked(server), "200 server");
  ::unsetenv("http_proxy");
  EXPECT_EQ(proxy.served(), 0);
}

TEST_F(net_http, a_name_that_does_not_resolve_and_a_strange_scheme_are_said) {
  EXPECT_TRUE(asked("no-such-host.invalid:1").starts_with("PeerLost"));
  EXPECT_THROW(HttpClient().post("file:///etc/passwd", "{}", seconds(5)), Error);
}

}  // namespace
}  // namespace trireme::net::http_test
