// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "cli/doctor/tcp_link.h"
#include "tests/support/ports.h"
#include "trireme/base/error.h"
#include "trireme/net/connect.h"

namespace trireme::doctor::doctor_link_test {
namespace {

const std::string kToken(kTokenBytes, 'a');

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

TEST(cli_doctor_link, a_link_is_measured_though_strangers_knock) {
  auto listener = net::Listener::loopback();
  const std::string at = listener.endpoint().text();
  std::thread answers([&] { answer_link(listener, kToken, soon()); });
  for (const std::string& token : {std::string(kTokenBytes, 'b'), std::string()}) {
    auto stranger = net::connect(net::Endpoint::parse(at), soon());
    stranger.send_all(token, soon());
    stranger.shutdown_write();
    char byte = 0;
    EXPECT_THROW(stranger.recv_all(&byte, 1, soon()), PeerLost);  // sent away without a word
  }
  const LinkFigures f = ask_link(at, kToken, soon());
  answers.join();
  EXPECT_EQ(f.error, "");
  EXPECT_GT(f.model.alpha, 0);
  EXPECT_LT(f.model.alpha, 0.1);
  EXPECT_GT(f.model.beta, 1e6);
  EXPECT_LE(std::abs(f.clock.seconds), f.clock.error + 1e-3);  // one clock
}

TEST(cli_doctor_link, an_end_that_is_not_there_is_an_error_of_the_link) {
  const std::string at = "127.0.0.1:" + std::to_string(trireme::testing::free_tcp_port());
  const LinkFigures f = ask_link(at, kToken, Deadline::after(std::chrono::milliseconds(300)));
  EXPECT_NE(f.error.find(at), std::string::npos) << f.error;
}

TEST(cli_doctor_link, nobody_asks_and_the_deadline_ends_it) {
  auto listener = net::Listener::loopback();
  EXPECT_THROW(answer_link(listener, kToken, Deadline::after(std::chrono::milliseconds(50))),
               Timeout);
}

}  // namespace
}  // namespace trireme::doctor::doctor_link_test
