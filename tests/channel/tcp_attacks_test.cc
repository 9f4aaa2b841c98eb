// SPDX-License-Identifier: Apache-2.0
// Strangers at a worker's port, and somebody between two workers: whatever they do, a channel that
// is open goes on meanwhile.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/channel/tcp_workers.h"
#include "tests/support/memory_limit.h"
#include "tests/support/refusals.h"
#include "tests/support/sanitized.h"
#include "trireme/base/log.h"
#include "trireme/channel/tcp/wire.h"
#include "trireme/net/connect.h"
#include "trireme/net/listener.h"

namespace trireme::channel::tcp_attacks_test {

using namespace tcp;

namespace {

using trireme::testing::has;
using trireme::testing::in_time;
using trireme::testing::kChannelSecret;
using trireme::testing::Listening;
using trireme::testing::pattern;
using trireme::testing::Worker;
using namespace std::chrono_literals;

constexpr double kSeconds = 15;  // three times the five of the handshake's limit

/// What open() throws, with its kind: "Mismatch: …".
std::string error_of(Worker& from, const std::string& address, const Peer& to,
                     Duration patience = 20s) {
  try {
    from.hub->open(address, to, std::make_shared<Listening>(), Deadline::after(patience));
  } catch (const Error& error) {
    return std::string(error.kind()) + ": " + error.what();
  }
  return "it opened";
}

class channel_tcp_attacks : public ::testing::Test {
 protected:
  channel_tcp_attacks() {
    set_log_sink([](LogLevel, std::string_view) {});
    to_ = a_.open(b_, std::make_shared<Listening>());
    b_.heard();
  }
  ~channel_tcp_attacks() override { set_log_sink({}); }

  static channel::TcpOptions impatient(const std::string& name) {
    auto out = Worker::options(name);
    out.handshake_limit = 500ms;
    return out;
  }
  net::Socket knock() { return net::connect(net::Endpoint::parse(b_.hub->address()), in_time()); }
  /// That the worker serves its peer yet, and soon.
  void expect_unharmed() {
    const auto start = Clock::now();
    EXPECT_TRUE(to_->send({"still", {pattern(2 * kChunk, 1)}}));
    auto came = b_.heard()->next();
    ASSERT_TRUE(came);
    EXPECT_EQ(came->bytes, "still");
    EXPECT_LT(seconds_since(start), kSeconds);
  }
  /// Whether the worker closes the connection in time.
  static bool closes(net::Socket& socket) {
    char bytes[4096];
    const auto until = Deadline::after(std::chrono::duration_cast<Duration>(kSeconds * 1s));
    try {
      while (socket.wait_readable(until)) {
        auto n = socket.recv_now(bytes, sizeof bytes);
        if (n && *n == 0) return true;
      }
    } catch (const PeerLost&) {
      return true;
    }
    return false;
  }

  Worker a_{"a"}, b_{impatient("b")};
  std::shared_ptr<Channel> to_;
};

/// Passes on what two workers say, frame by frame, after a handshake; `deed` says what goes on in
/// place of a frame of the one who called.
class Between {
 public:
  using Deed = std::function<std::vector<std::string>(int number, const std::string& frame)>;
  Between(std::string to, Deed deed)
      : deed_(std::move(deed)), thread_([this, to = std::move(to)] { run(to); }) {}
  ~Between() { thread_.join(); }
  std::string address() const { return listener_.endpoint().text(); }

 private:
  static std::string read_frame(net::Socket& from, bool sealed) {
    const size_t tag = sealed ? net::Seal::kTagBytes : 0;
    std::string out(net::kFrameHeaderBytes + tag, '\0');
    from.recv_all(out.data(), out.size(), in_time());
    net::Reader length(std::string_view(out).substr(8, 4), "length");
    std::string rest(length.u32() + tag, '\0');
    from.recv_all(rest.data(), rest.size(), in_time());
    return out + rest;
  }
  void run(const std::string& to) {
    try {
      auto caller = listener_.accept(in_time());
      auto called = net::connect(net::Endpoint::parse(to), in_time());
      for (int turn = 0; turn < 3; ++turn) {  // the handshake, the greetings
        called.send_all(read_frame(caller, turn == 2), in_time());
        caller.send_all(read_frame(called, turn == 2), in_time());
      }
      for (int number = 0; number < 2; ++number)
        for (const auto& frame : deed_(number, read_frame(caller, true)))
          called.send_all(frame, in_time());
    } catch (const Error&) {  // one of the two left
    }
  }

  Deed deed_;
  net::Listener listener_ = net::Listener::loopback();
  std::thread thread_;
};

}  // namespace

TEST_F(channel_tcp_attacks, another_secret_is_a_usage_error_and_no_channel) {
  auto options = Worker::options("c");
  options.credentials.secret.emplace("another secret of thirty-two byte");
  Worker c(std::move(options));
  const auto text = error_of(c, b_.hub->address(), {"b", 1});
  EXPECT_TRUE(has(text, "UsageError: ") && has(text, "wrong secret")) << text;
  auto none = Worker::options("d");
  none.credentials.secret.reset();
  Worker d(std::move(none));
  EXPECT_TRUE(has(error_of(d, b_.hub->address(), {"b", 1}), "UsageError: "));
  EXPECT_TRUE(has(error_of(a_, d.hub->address(), {"d", 1}), "UsageError: "));
  EXPECT_EQ(b_.channels(), 1u);
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, another_generation_or_name_is_a_mismatch_that_names_both) {
  Worker old(Worker::options("c", 6));
  auto text = error_of(old, b_.hub->address(), {"b", 6});
  EXPECT_TRUE(has(text, "Mismatch: ") && has(text, "generation 6") && has(text, "generation 1"))
      << text;
  text = error_of(old, b_.hub->address(), {"b", 1});  // it knows better, and is still of another
  EXPECT_TRUE(has(text, "Mismatch: ") && has(text, "generation 6") && has(text, "generation 1"))
      << text;
  text = error_of(a_, b_.hub->address(), {"server0", 1});
  EXPECT_TRUE(has(text, "Mismatch: ") && has(text, "'server0'") && has(text, "'b'")) << text;
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, another_version_is_a_mismatch_that_names_both) {
  // A worker of a version to come calls …
  auto socket = knock();
  auto session =
      net::authenticate_as_client(socket, {"job", net::Secret(kChannelSecret)}, in_time());
  Greeting theirs;
  theirs.version = kChannelVersion + 6;
  const auto type = static_cast<uint16_t>(ChannelFrame::greeting);
  socket.send_all(session.seal(net::encode_frame(type, encode_greeting(theirs))), in_time());
  const auto answer = net::recv_frame(socket, net::kMaxPayloadBefore, in_time(), &*session.in);
  const Greeting ours = decode_greeting(answer.payload);
  EXPECT_EQ(ours.verdict, Verdict::other_version);
  EXPECT_TRUE(has(ours.text, "version 1") && has(ours.text, "version 7")) << ours.text;
  EXPECT_TRUE(closes(socket));
  // … and is called.
  auto listener = net::Listener::loopback();
  std::thread other([&] {
    auto called = listener.accept(in_time());
    auto with =
        net::authenticate_as_server(called, {"job", net::Secret(kChannelSecret)}, in_time());
    net::recv_frame(called, net::kMaxPayloadBefore, in_time(), &*with.in);
    called.send_all(with.seal(net::encode_frame(type, encode_greeting(theirs))), in_time());
    closes(called);
  });
  const auto text = error_of(a_, listener.endpoint().text(), {"b", 1});
  other.join();
  EXPECT_TRUE(has(text, "Mismatch: ") && has(text, "version 7") && has(text, "version 1")) << text;
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, ten_mebibytes_of_random_bytes_come_to_nothing) {
  std::mt19937_64 random(5);
  std::string bytes(10 << 20, '\0');
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  const auto hello =
      net::encode_frame(1, net::Writer().u8(1).string("job").raw(std::string(32, 'c')).bytes());
  for (const std::string& before : {std::string(), std::string("TRIR"), hello}) {
    auto socket = knock();
    try {
      socket.send_all(before + bytes, in_time());
    } catch (const PeerLost&) {  // it saw enough
    }
    EXPECT_TRUE(closes(socket));
  }
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, who_knows_the_secret_and_sends_random_bytes_loses_his_channel_alone) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 20; ++i) {
    auto socket = knock();
    auto session =
        net::authenticate_as_client(socket, {"job", net::Secret(kChannelSecret)}, in_time());
    Greeting ours;
    ours.self = {"evil", 1};
    const auto type = static_cast<uint16_t>(ChannelFrame::greeting);
    socket.send_all(session.seal(net::encode_frame(type, encode_greeting(ours))), in_time());
    net::recv_frame(socket, net::kMaxPayloadBefore, in_time(), &*session.in);
    std::string payload(random() % 2000, '\0');
    for (char& byte : payload) byte = static_cast<char>(random());
    // Sealed as it should be, and without any sense.
    const auto kind = static_cast<uint16_t>(static_cast<uint16_t>(ChannelFrame::message) + i % 4);
    socket.send_all(session.seal(net::encode_frame(kind, payload)), in_time());
    EXPECT_TRUE(closes(socket));
    EXPECT_NE(b_.heard(1 + static_cast<size_t>(i))->end(), "");
  }
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, who_says_nothing_or_no_greeting_is_closed_in_time) {
  std::vector<net::Socket> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(knock());
  auto proved = knock();
  net::authenticate_as_client(proved, {"job", net::Secret(kChannelSecret)}, in_time());
  for (auto& socket : silent) EXPECT_TRUE(closes(socket));
  EXPECT_TRUE(closes(proved));
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, a_frame_that_is_repeated_altered_or_left_out_ends_the_channel) {
  const std::vector<Between::Deed> deeds = {[](int, const std::string& frame) {
                                              return std::vector<std::string>{frame, frame};
                                            },
                                            [](int, std::string frame) {
                                              frame[frame.size() / 2] ^= 1;
                                              return std::vector<std::string>{frame};
                                            },
                                            [](int number, const std::string& frame) {
                                              return number == 0 ? std::vector<std::string>{}
                                                                 : std::vector<std::string>{frame};
                                            }};
  for (size_t i = 0; i < deeds.size(); ++i) {
    auto heard = std::make_shared<Listening>();
    Between between(b_.hub->address(), deeds[i]);
    auto to = a_.hub->open(between.address(), {"b", 1}, heard, in_time());
    to->send({"one", {}});
    to->send({"two", {}});
    auto theirs = b_.heard(i + 1);
    EXPECT_TRUE(has(theirs->end(), "is not what the other end sent"));
    EXPECT_LE(theirs->count(), i == 0 ? 1u : 0u);
    EXPECT_NE(heard->end(), "");
  }
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, another_program_at_a_workers_address_is_a_lost_peer) {
  auto listener = net::Listener::loopback();
  std::thread other([&] {
    auto socket = listener.accept(in_time());
    socket.send_all("HTTP/1.0 400 Bad Request\r\n\r\n", in_time());
    closes(socket);
  });
  const auto text = error_of(a_, listener.endpoint().text(), {"b", 1});
  other.join();
  EXPECT_TRUE(has(text, "PeerLost: ") && has(text, "another program")) << text;
}

TEST_F(channel_tcp_attacks, a_flood_of_strangers_keeps_no_worker_out) {
  std::vector<net::Socket> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(knock());
  Worker c("c");
  const auto start = Clock::now();
  auto to = c.open(b_, std::make_shared<Listening>());
  EXPECT_LT(seconds_since(start), kSeconds);
  EXPECT_TRUE(to->send({"", {}}));
  expect_unharmed();
}

TEST_F(channel_tcp_attacks, beyond_its_most_channels_a_worker_refuses_and_says_so) {
  auto options = Worker::options("few");
  options.max_channels = 2;
  Worker few(std::move(options));
  auto one = a_.open(few, std::make_shared<Listening>()),
       two = a_.open(few, std::make_shared<Listening>());
  const auto text = error_of(a_, few.hub->address(), {"few", 1});
  EXPECT_TRUE(has(text, "PeerLost: ") && has(text, "2 channels")) << text;
}

TEST_F(channel_tcp_attacks, who_is_not_accepted_hears_it) {
  auto options = Worker::options("shy");
  options.accept = [](const std::shared_ptr<Channel>& channel) -> std::shared_ptr<Receiver> {
    channel->send({"never seen", {}});
    return nullptr;
  };
  Worker shy(std::move(options));
  const auto text = error_of(a_, shy.hub->address(), {"shy", 1});
  EXPECT_TRUE(has(text, "PeerLost: ") && has(text, "takes no channel from worker 'a'")) << text;
}

}  // namespace trireme::channel::tcp_attacks_test
