// SPDX-License-Identifier: Apache-2.0
// Somebody between a rank and the store who passed the handshake on: what he does to a frame is
// noticed and named, and nothing of it is obeyed. (The fuzz target `sealed` does the same to the
// bytes alone.)
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "tests/store/strangers.h"
#include "tests/support/refusals.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/store/protocol.h"

namespace relay_test {

using namespace trireme;
using namespace trireme::testing;
using namespace std::chrono_literals;

namespace {

using trireme::testing::has;

constexpr double kSeconds = 15;  // three times the five in which it must be noticed

detail::Request add(const std::string& key) { return {detail::Op::add, 0, 1, {key}, "", ""}; }

/// One frame as it goes over the wire; "" at the end of the stream.
std::string read_wire(net::Socket& from, bool sealed) {
  const size_t tag = sealed ? net::Seal::kTagBytes : 0;
  try {
    std::string out(net::kFrameHeaderBytes + tag, '\0');
    from.recv_all(out.data(), out.size(), soon());
    net::Reader length(std::string_view(out).substr(8, 4), "length");
    std::string rest(length.u32() + tag, '\0');
    from.recv_all(rest.data(), rest.size(), soon());
    return out + rest;
  } catch (const PeerLost&) {
    return "";
  }
}

/// Passes the handshake on between one client and the store, then what `deed` makes of the frames.
class Relay {
 public:
  /// Of frame `number` (0: the first after the handshake) of one side; what it returns goes on to
  /// the other. nullopt: cut.
  using Deed = std::function<std::optional<std::string>(bool from_client, int number,
                                                        const std::string& frame)>;
  Relay(net::Endpoint store, Deed deed)
      : deed_(std::move(deed)), thread_([this, store] { run(store); }) {}
  ~Relay() { thread_.join(); }
  const net::Endpoint& at() const { return listener_.endpoint(); }

 private:
  void run(const net::Endpoint& store) {
    try {
      auto client = listener_.accept(soon());
      auto server = net::connect(store, soon());
      for (int turn = 0;; ++turn) {
        for (bool from_client : {true, false}) {
          auto& from = from_client ? client : server;
          auto frame = read_wire(from, turn >= 2);
          if (frame.empty()) return;
          if (turn >= 2) {
            auto next = deed_(from_client, turn - 2, frame);
            if (!next) return;
            frame = *next;
          }
          (from_client ? server : client).send_all(frame, soon());
        }
      }
    } catch (const Error&) {  // one of the two left
    }
  }

  Deed deed_;
  net::Listener listener_ = net::Listener::loopback();
  std::thread thread_;
};

class store_relay : public ::testing::Test {
 protected:
  store_relay() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~store_relay() override { set_log_sink({}); }

  net::Endpoint at() const { return server_.endpoints()[0]; }
  int64_t value(const std::string& key) {
    return std::stoll(server_.local_store()->try_get(key).value_or("0"));
  }

  /// A client behind a relay; its three calls, the last of which `deed` disturbs. What that one
  /// threw, as "Kind: text".
  std::string disturbed(Relay::Deed deed, Duration answer_limit = 20s) {
    Relay relay(at(), std::move(deed));
    auto client = TcpStore::connect(relay.at(), with(kSecret), soon(), answer_limit);
    EXPECT_EQ(client->add("calls", 1), 1);
    EXPECT_EQ(client->add("calls", 1), 2);
    auto start = Clock::now();
    std::string said = "believed";
    try {
      client->add("calls", 1);
    } catch (const Error& error) {
      said = std::string(error.kind()) + ": " + error.what();
    }
    EXPECT_LT(seconds_since(start), kSeconds);
    EXPECT_THROW(client->add("calls", 1), PeerLost);  // that connection is finished
    server_.local_store()->delete_key("calls");
    return said;
  }

  /// What a relay makes of a client's first frames: sent on a connection that is through the
  /// handshake. The store must close it, say why, and obey only the first `obeyed` requests.
  void expect_noticed(const char* deed, int obeyed,
                      const std::function<std::string(net::Session&)>& bytes) {
    SCOPED_TRACE(deed);
    StoreServer server({with(kSecret)});
    auto socket = net::connect(server.endpoints()[0], soon());
    auto session = net::authenticate_as_client(socket, with(kSecret), soon());
    auto start = Clock::now();
    socket.send_all(bytes(session), soon());
    EXPECT_TRUE(closes(socket, soon()));
    EXPECT_LT(seconds_since(start), kSeconds);
    EXPECT_EQ(server.local_store()->try_get("n").value_or("0"), std::to_string(obeyed));
    EXPECT_FALSE(server.local_store()->check({"stolen"}));
    ASSERT_EQ(server.refusals().size(), 1u);
    EXPECT_TRUE(has(server.refusals()[0], "something between")) << server.refusals()[0];
  }

  StoreServer server_{StoreServer::Options{with(kSecret)}};
  RealClient real_{at()};
};

}  // namespace

TEST_F(store_relay, who_only_passes_on_changes_nothing_and_may_cut) {
  auto said = disturbed([](bool, int number, const std::string& frame) {
    return number < 2 ? std::optional(frame) : std::nullopt;
  });
  EXPECT_TRUE(has(said, "PeerLost: the store at")) << said;
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_relay, a_request_put_in_is_not_obeyed) {
  expect_noticed("bare", 1, [](net::Session& session) {
    return session.seal(encode(add("n"))) + encode(add("stolen"));
  });
  expect_noticed("under a key of his own", 1, [](net::Session& session) {
    net::Seal own(std::string(32, 'k'));
    own.sign(encode(add("n")));
    return session.seal(encode(add("n"))) + own.sign(encode(add("stolen")));
  });
  expect_noticed("no frame at all", 1, [](net::Session& session) {
    return session.seal(encode(add("n"))) + "TRIR\3" + std::string(100, '\0');
  });
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_relay, a_request_repeated_reordered_or_left_out_is_not_obeyed) {
  expect_noticed("repeated", 1, [](net::Session& session) {
    auto frame = session.seal(encode(add("n")));
    return frame + frame;
  });
  expect_noticed("reordered", 0, [](net::Session& session) {
    auto first = session.seal(encode(add("n")));
    return session.seal(encode(add("stolen"))) + first;
  });
  expect_noticed("left out", 1, [](net::Session& session) {
    auto first = session.seal(encode(add("n")));
    session.seal(encode(add("n")));
    return first + session.seal(encode(add("stolen")));
  });
  expect_noticed("the head of one, the rest of another", 1, [](net::Session& session) {
    auto first = session.seal(encode(add("n")));
    auto second = session.seal(encode(add("n")));
    auto head = net::kFrameHeaderBytes + net::Seal::kTagBytes;
    return first + second.substr(0, head) + first.substr(head);
  });
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_relay, a_request_of_another_connection_is_not_obeyed) {
  auto other = net::connect(at(), soon());
  auto theirs = net::authenticate_as_client(other, with(kSecret), soon());
  expect_noticed("crossed", 0, [&](net::Session&) { return theirs.seal(encode(add("stolen"))); });
}

TEST_F(store_relay, a_request_sent_back_at_its_author_is_not_taken_for_an_answer) {
  std::string request;
  auto said = disturbed([&](bool from_client, int number, const std::string& frame) {
    if (from_client) request = frame;
    return std::optional(!from_client && number == 2 ? request : frame);
  });
  EXPECT_TRUE(has(said, "PeerLost") && has(said, "something between")) << said;
}

TEST_F(store_relay, any_bit_of_a_request_that_is_flipped_is_noticed_and_told_to_both) {
  const size_t bytes = encode(add("calls")).size() + 2 * net::Seal::kTagBytes;
  for (size_t at = 0; at < bytes; at += 3) {
    auto said = disturbed([&](bool from_client, int number, const std::string& frame) {
      auto out = frame;
      EXPECT_TRUE(!from_client || out.size() == bytes);
      if (from_client && number == 2) out[at] ^= static_cast<char>(1 << at % 8);
      return std::optional(out);
    });
    EXPECT_TRUE(has(said, "PeerLost") && has(said, "something between")) << at << ": " << said;
  }
  EXPECT_EQ(server_.refusals().size(), 1u);  // once a source
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_relay, any_bit_of_an_answer_that_is_flipped_is_noticed) {
  const size_t bytes = encode(detail::Reply{}).size() + 2 * net::Seal::kTagBytes;
  for (size_t at = 0; at < bytes; at += 3) {
    auto said = disturbed([&](bool from_client, int number, const std::string& frame) {
      auto out = frame;
      EXPECT_TRUE(from_client || out.size() == bytes);
      if (!from_client && number == 2) out[at] ^= static_cast<char>(1 << at % 8);
      return std::optional(out);
    });
    EXPECT_TRUE(has(said, "PeerLost") && has(said, "something between")) << at << ": " << said;
  }
  EXPECT_EQ(real_.stop(), "");
}

TEST_F(store_relay, an_old_or_a_forged_answer_is_not_believed) {
  std::string earlier;
  auto said = disturbed([&](bool from_client, int number, const std::string& frame) {
    if (!from_client && number == 1) earlier = frame;
    return std::optional(!from_client && number == 2 ? earlier : frame);
  });
  EXPECT_TRUE(has(said, "PeerLost") && has(said, "something between")) << said;
  for (bool refusal : {false, true}) {
    said = disturbed([&](bool from_client, int number, const std::string& frame) {
      auto forged = refusal ? net::ServerHandshake::refuse(net::Refusal::wrong_secret, "go").reply
                            : encode(detail::Reply{detail::Status::ok, 77, "", {}});
      // Long enough that nobody waits for the rest of it.
      return std::optional(!from_client && number == 2 ? forged + std::string(32, '\0') : frame);
    });
    EXPECT_TRUE(has(said, "PeerLost") && has(said, "something between")) << said;
  }
}

TEST_F(store_relay, an_answer_that_ends_early_is_a_cut) {
  std::string piece;
  auto said = disturbed(
      [&](bool from_client, int number, const std::string& frame) {
        return std::optional(!from_client && number == 2 ? frame.substr(0, 50) : frame);
      },
      500ms);
  EXPECT_TRUE(has(said, "Timeout: the store at") && has(said, "did not answer")) << said;
}

TEST_F(store_relay, nobody_but_the_rank_itself_says_its_goodbye) {
  // A will is what a rank's death does; who could forge a goodbye could hide it.
  std::atomic<bool> cut{false};
  {
    Relay relay(at(), [&](bool from_client, int number, const std::string& frame) {
      if (number < 1 || !from_client) return std::optional(frame);
      cut = true;
      detail::Request goodbye;
      goodbye.op = detail::Op::goodbye;
      return std::optional(encode(goodbye) + std::string(32, '\0'));
    });
    auto client = TcpStore::connect(relay.at(), with(kSecret), soon());
    client->set_will("rank/1", "lost");
    EXPECT_THROW(client->add("n", 1), PeerLost);
  }
  EXPECT_TRUE(cut);
  EXPECT_EQ(server_.local_store()->get("rank/1", soon()), "lost");
}

TEST_F(store_relay, the_store_says_where_it_listens_and_no_relay_can_say_otherwise) {
  Relay relay(at(), [](bool, int, const std::string& frame) { return std::optional(frame); });
  auto socket = net::connect(relay.at(), soon());
  auto entry = net::try_authenticate(socket, with(kSecret), soon());
  ASSERT_FALSE(entry.refused);
  EXPECT_EQ(entry.port, at().address.port);
  EXPECT_NE(entry.port, relay.at().address.port);
}

}  // namespace relay_test
