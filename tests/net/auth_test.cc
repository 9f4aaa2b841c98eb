// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/auth.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <map>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/net/hmac.h"

namespace auth_test {

using namespace trireme;
using namespace trireme::testing;
using namespace trireme::net;
using namespace std::chrono_literals;

namespace {

const std::string kOne = "0123456789abcdef0123456789abcdef";
const std::string kOther = "ffffffffffffffffffffffffffffffff";

Deadline soon() { return Deadline::after(5s); }

std::pair<Socket, Socket> pair_of() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  return {Socket(UniqueFd(fds[0]), "the client"), Socket(UniqueFd(fds[1]), "the server")};
}

/// What each side threw: {client, server}, "" for nothing.
std::pair<std::string, std::string> meet(const Credentials& client, const Credentials& server) {
  auto [s, c] = pair_of();
  auto serving = std::async(std::launch::async, [&, &s = s]() -> std::string {
    try {
      authenticate_as_server(s, server, soon());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  });
  std::string said;
  try {
    authenticate_as_client(c, client, soon());
  } catch (const UsageError& error) {
    said = error.what();
  }
  return {said, serving.get()};
}

Credentials with(const std::string& secret, std::string job = "job") {
  return {std::move(job), Secret(secret)};
}
Credentials without(std::string job = "job") { return {std::move(job), std::nullopt}; }

Getenv map_env(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    auto at = values.find(name);
    return at == values.end() ? std::nullopt : std::optional(at->second);
  };
}

void write_mode(const std::string& path, const std::string& text, mode_t mode) {
  write_file_atomic(path, text);
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

}  // namespace

TEST(net_auth, the_same_secret_lets_in) {
  auto [client, server] = meet(with(kOne), with(kOne));
  EXPECT_EQ(client, "");
  EXPECT_EQ(server, "");
  std::tie(client, server) = meet(without(), without());
  EXPECT_EQ(client, "");
  EXPECT_EQ(server, "");
}

TEST(net_auth, a_wrong_secret_is_said_on_both_sides_and_shown_on_none) {
  auto start = Clock::now();
  auto [client, server] = meet(with(kOther), with(kOne));
  EXPECT_TRUE(has(client, "wrong secret")) << client;
  EXPECT_TRUE(has(client, "TRIREME_SECRET_FILE")) << client;
  EXPECT_TRUE(has(server, "wrong secret")) << server;
  EXPECT_FALSE(has(client + server, kOne));
  EXPECT_FALSE(has(client + server, kOther));
  EXPECT_LT(seconds_since(start), 2);
}

TEST(net_auth, a_secret_meets_nobody_without_one) {
  auto [client, server] = meet(without(), with(kOne));
  EXPECT_TRUE(has(client, "does not have it")) << client;
  EXPECT_NE(server, "");
  std::tie(client, server) = meet(with(kOne), without());
  EXPECT_TRUE(has(client, "runs without one")) << client;
  EXPECT_NE(server, "");
}

TEST(net_auth, jobs_do_not_mix) {
  for (auto& [client, server] :
       {meet(with(kOne, "a"), with(kOne, "b")), meet(without("a"), without("b"))}) {
    EXPECT_TRUE(has(client, "another job")) << client;
    EXPECT_TRUE(has(server, "another job")) << server;
  }
  auto [a, b] = pair_of();
  EXPECT_THROW(authenticate_as_client(a, with(kOne, std::string(kMaxJobId + 1, 'j')), soon()),
               UsageError);
}

TEST(net_auth, a_server_that_only_repeats_us_is_not_believed) {
  auto [s, c] = pair_of();
  auto echo = std::async(std::launch::async, [&s = s] {
    Frame hello = recv_frame(s, kMaxPayloadBefore, soon());
    auto nonce = hello.payload.substr(hello.payload.size() - 32);
    send_frame(s, 2, "\1" + nonce + "xx", soon());  // our own nonce as the challenge
    Frame proof = recv_frame(s, kMaxPayloadBefore, soon());
    send_frame(s, 4, proof.payload, soon());  // our own proof as its proof
  });
  auto refused = try_authenticate(c, with(kOne), soon()).refused;
  echo.get();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Refusal::wrong_secret);
}

TEST(net_auth, a_recorded_handshake_opens_nothing) {
  auto credentials = with(kOne);
  // Record what an honest client says …
  auto [s, c] = pair_of();
  ServerHandshake honest(credentials);
  auto client = std::async(
      std::launch::async, [&, &c = c] { return try_authenticate(c, credentials, soon()).refused; });
  Frame hello = recv_frame(s, kMaxPayloadBefore, soon());
  s.send_all(honest.on_frame(hello).reply, soon());
  Frame proof = recv_frame(s, kMaxPayloadBefore, soon());
  auto done = honest.on_frame(proof);
  EXPECT_TRUE(done.done);
  s.send_all(done.reply, soon());
  EXPECT_FALSE(client.get());
  // … and say it again to the same server.
  ServerHandshake again(credentials);
  EXPECT_FALSE(again.on_frame(hello).refused);
  auto replayed = again.on_frame(proof);
  ASSERT_TRUE(replayed.refused);
  EXPECT_EQ(replayed.refused->code, Refusal::wrong_secret);
}

TEST(net_auth, version_3_is_spoken_like_this) {
  // The landed handshake, by hand: a change here is a new version of the frame.
  auto credentials = with(kOne);
  ServerHandshake server(credentials, 0x733d);
  auto hello = Writer().u8(1).string("job").raw(std::string(32, 'c')).take();
  auto challenge = server.on_frame({1, hello}).reply;
  ASSERT_EQ(challenge.size(), 12u + 1 + 32 + 2);
  EXPECT_EQ(challenge.substr(0, 13), std::string("TRIR\3\0\2\0\x23\0\0\0\1", 13));
  EXPECT_EQ(challenge.substr(45), "\x3d\x73");
  auto said =
      Writer().string("trireme control 3").string(encode_frame(1, hello)).string(challenge).take();
  auto extracted = hmac_sha256(sha256(said), kOne);
  auto welcome = server.on_frame({3, hmac_sha256(extracted, "client proof\1")});
  EXPECT_TRUE(welcome.done);
  EXPECT_EQ(welcome.reply, encode_frame(4, hmac_sha256(extracted, "server proof\1")));
  auto session = server.take_session();
  ASSERT_TRUE(session.in && session.out);
  auto key = hmac_sha256(extracted, "server seal\1");
  auto bare = encode_frame(64, "hi");
  for (uint64_t number : {0, 1}) {
    auto tag = [&](uint8_t part, const std::string& bytes) {
      return hmac_sha256(key, Writer().u64(number).u8(part).raw(bytes).bytes()).substr(0, 16);
    };
    EXPECT_EQ(session.seal(bare),
              bare.substr(0, 12) + tag(0, bare.substr(0, 12)) + "hi" + tag(1, bare));
  }
}

TEST(net_auth, whatever_is_altered_in_a_handshake_is_noticed) {
  // A relay flips one bit, anywhere, of one of the four messages.
  auto credentials = with(kOne);
  int tried = 0;
  for (int message = 0; message < 4; ++message)
    for (size_t at = 0;; ++at) {
      auto [s, c] = pair_of();
      bool flipped = false, let_in = false;
      auto server = std::async(std::launch::async, [&, &s = s] {
        ServerHandshake handshake(credentials, 29501);
        try {
          for (int i = 0; i < 4; i += 2) {
            auto pass = [&](std::string bytes, int number) {
              if (number != message || at >= bytes.size() - 1) return bytes;
              flipped = true;
              bytes[at] ^= static_cast<char>(1 << at % 8);
              return bytes;
            };
            Frame heard = recv_frame(s, kMaxPayloadBefore, soon());
            FrameParser in;
            in.feed(pass(encode_frame(heard.type, heard.payload), i));
            auto frame = in.next(kMaxPayloadBefore);
            if (!frame) return s.close();  // it would wait for bytes that do not come
            auto step = handshake.on_frame(*frame);
            let_in |= step.done;
            s.send_all(pass(step.reply, i + 1), soon());
            if (step.refused) return s.close();
          }
        } catch (const Error&) {
        }
        s.close();
      });
      bool believed = false;
      try {
        believed = !try_authenticate(c, credentials, soon()).refused;
      } catch (const Error&) {
      }
      c.close();
      server.get();
      if (!flipped) break;
      ++tried;
      EXPECT_FALSE(believed) << "message " << message << ", byte " << at;
      EXPECT_TRUE(!let_in || message == 3) << "message " << message << ", byte " << at;
    }
  EXPECT_GT(tried, 150);
}

TEST(net_auth, keys_are_those_of_rfc_5869) {
  // Its test case 1, as far as one block goes.
  auto hex = [](std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); i += 2)
      out += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
    return out;
  };
  auto extracted = hkdf_extract(hex("000102030405060708090a0b0c"), std::string(22, '\x0b'));
  EXPECT_EQ(extracted, hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"));
  EXPECT_EQ(hkdf_expand(extracted, hex("f0f1f2f3f4f5f6f7f8f9")),
            hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
  EXPECT_TRUE(same_bytes("", "") && same_bytes("ab", "ab"));
  EXPECT_FALSE(same_bytes("ab", "ac") || same_bytes("ab", "a"));
}

TEST(net_auth, a_proof_before_the_hello_and_short_fields_are_refused) {
  auto credentials = with(kOne);
  for (const auto& frame : {Frame{3, std::string(32, 'x')}, Frame{1, ""},
                            Frame{1, "\1\377\377\377\377"}, Frame{99, ""}}) {
    ServerHandshake server(credentials);
    auto step = server.on_frame(frame);
    ASSERT_TRUE(step.refused);
    EXPECT_EQ(step.refused->code, Refusal::not_understood);
    EXPECT_FALSE(step.done);
  }
}

TEST(net_auth, a_silent_or_closing_peer_is_not_waited_for) {
  auto [a, b] = pair_of();
  EXPECT_THROW(authenticate_as_client(a, without(), Deadline::after(30ms)), Timeout);
  b.close();
  EXPECT_THROW(authenticate_as_client(a, without(), soon()), PeerLost);
}

TEST(net_auth, a_client_of_another_version_hears_both) {
  for (int version : {1, 2, 4}) {
    auto [s, c] = pair_of();
    auto other = encode_frame(1, "whatever they say then");
    other[4] = static_cast<char>(version);
    c.send_all(other, soon());
    EXPECT_THROW(authenticate_as_server(s, without(), soon()), UsageError);
    Frame refused = recv_frame(c, kMaxPayloadBefore, soon());
    EXPECT_TRUE(has(refused.payload, "version 3")) << refused.payload;
    EXPECT_TRUE(has(refused.payload, "version " + std::to_string(version))) << refused.payload;
  }
}

TEST(net_auth, what_a_stranger_says_is_printed_harmlessly) {
  auto [s, c] = pair_of();
  auto evil = std::async(std::launch::async, [&s = s] {
    recv_frame(s, kMaxPayloadBefore, soon());
    send_frame(s, 5, Writer().u8(200).string("\x1b[31mred\nlines").bytes(), soon());
  });
  auto refused = try_authenticate(c, without(), soon()).refused;
  evil.get();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Refusal::not_understood);
  EXPECT_EQ(refused->text, "?[31mred?lines");
}

TEST(net_auth, new_secrets_are_long_and_never_the_same) {
  auto a = generate_secret();
  EXPECT_EQ(a.size(), 64u);
  EXPECT_NE(a, generate_secret());
  EXPECT_EQ(Secret(" " + a + "\n").bytes(), a);
  EXPECT_THROW(Secret("short"), UsageError);
  EXPECT_THROW(Secret(std::string(2000, 'x')), UsageError);
}

TEST(net_auth, a_secret_file_that_others_may_read_is_refused) {
  PrivateFolder folder;
  auto path = folder / "secret";
  write_mode(path, kOne + "\n", 0600);
  EXPECT_EQ(read_secret_file(path).bytes(), kOne);
  for (mode_t mode : {0640, 0604, 0660, 0644}) {
    write_mode(path, kOne, mode);
    try {
      read_secret_file(path);
      ADD_FAILURE() << mode;
    } catch (const UsageError& error) {
      EXPECT_TRUE(has(error.what(), "chmod 600 " + path)) << error.what();
      EXPECT_FALSE(has(error.what(), kOne));
    }
  }
  write_mode(path, "", 0600);
  EXPECT_THROW(read_secret_file(path), UsageError);
  write_mode(path, std::string(5000, 'x'), 0600);
  EXPECT_THROW(read_secret_file(path), UsageError);
  EXPECT_THROW(read_secret_file(folder / "none"), UsageError);
  EXPECT_THROW(read_secret_file(folder.path()), UsageError);
}

TEST(net_auth, the_secret_comes_from_the_variable_then_from_home_then_the_spoken_way_out) {
  PrivateFolder home;
  auto nothing = load_admission(map_env({{"HOME", home.path()}}));
  EXPECT_FALSE(nothing.given());
  EXPECT_TRUE(has(nothing.origin, home.path() + "/.config/trireme/secret")) << nothing.origin;
  EXPECT_FALSE(load_admission(map_env({})).given());

  auto insecure = load_admission(map_env({{"HOME", home.path()}, {"TRIREME_INSECURE", "1"}}));
  EXPECT_TRUE(insecure.insecure);
  EXPECT_FALSE(insecure.secret);

  std::filesystem::create_directories(home / ".config/trireme");
  write_mode(home / ".config/trireme/secret", kOne, 0600);
  EXPECT_EQ(load_admission(map_env({{"HOME", home.path()}})).secret->bytes(), kOne);
  EXPECT_EQ(
      load_admission(map_env({{"HOME", home.path()}, {"TRIREME_INSECURE", "0"}})).secret->bytes(),
      kOne);

  write_mode(home / "mine", kOther, 0600);
  auto named =
      load_admission(map_env({{"HOME", home.path()}, {"TRIREME_SECRET_FILE", home / "mine"}}));
  EXPECT_EQ(named.secret->bytes(), kOther);

  EXPECT_THROW(
      load_admission(map_env({{"TRIREME_SECRET_FILE", home / "mine"}, {"TRIREME_INSECURE", "1"}})),
      UsageError);
  EXPECT_THROW(load_admission(map_env({{"TRIREME_INSECURE", "yes"}})), UsageError);
  EXPECT_THROW(load_admission(map_env({{"TRIREME_SECRET_FILE", home / "none"}})), UsageError);
}

}  // namespace auth_test
