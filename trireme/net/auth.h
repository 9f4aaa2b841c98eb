// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/net/frame.h"
#include "trireme/net/seal.h"
#include "trireme/net/secret.h"
#include "trireme/net/socket.h"

// Who may join: both ends prove that they know the job's secret, and neither shows it.
//   client → hello     flags, job id, client nonce
//   server → challenge flags, server nonce, its port                 or refused
//   client → proof     a key that only this secret and this conversation give
//   server → welcome   another                                       or refused
// Keys: HKDF-SHA256 of the secret, salted with the hash of the hello and the challenge as they went
// over the wire, so with versions, flags, job id, both nonces and the port. Whoever alters one of
// them on the way gets two ends whose proofs do not fit. From the same come the keys that seal
// every later frame (net/seal.h), one for each direction: somebody who passes a handshake on has no
// part in them. Whoever has a secret deals with nobody who has none. Without one (a Unix socket
// whose peer's uid the kernel told, or TRIREME_INSECURE=1) the same four messages run under a
// public key and later frames are bare: then they only tell one job from another. Nothing is
// encrypted.
namespace trireme::net {

inline constexpr size_t kMaxJobId = 256;

struct Credentials {
  std::string job_id;  // at most kMaxJobId bytes; may be empty
  std::optional<Secret> secret;
};

/// How long an unauthenticated connection may live.
inline constexpr Duration kHandshakeLimit = std::chrono::seconds(5);

enum class Refusal : uint8_t {
  wrong_secret = 1,
  secret_required = 2,  // the server has one, the client none
  no_secret_here = 3,   // the client has one, the server none
  other_job = 4,
  not_understood = 5,
  busy = 6,
};

struct Refused {
  Refusal code;
  std::string text;  // the refuser's sentence, printable
};

/// What the secret gives for one conversation, told by the frames of its hello and its challenge.
/// Wiped when it dies.
struct TRIREME_API HandshakeKeys {
  HandshakeKeys(const Credentials& own, std::string_view hello, std::string_view challenge);
  HandshakeKeys(const HandshakeKeys&) = delete;
  ~HandshakeKeys();
  std::string client_proof, server_proof;
  std::string client_seal, server_seal;  // of the frames that each sends later
};

/// The server's side without the socket: frames in, frames out.
class TRIREME_API ServerHandshake {
 public:
  /// `port`: where the server listens; 0 for none. The client learns it beyond doubt.
  explicit ServerHandshake(const Credentials& own, uint16_t port = 0);
  struct Step {
    std::string reply;  // a whole frame to send
    bool done = false;
    std::optional<Refused> refused;  // send the reply, then close
  };
  Step on_frame(const Frame& frame);
  /// The reply for bytes that are no frame.
  static Step refuse(Refusal code, std::string text);
  /// The other end has said whose job it wants, and in words of ours.
  bool challenged() const { return !challenge_.empty(); }
  /// Once done: for the frames after the welcome.
  Session take_session() { return std::move(session_); }

 private:
  Step on_hello(const Frame& frame);
  Step on_proof(const Frame& frame);

  const Credentials& own_;
  const uint16_t port_;
  std::string hello_, challenge_;  // whole frames
  Session session_;
};

/// What a handshake came to for the client.
struct Entry {
  std::optional<Refused> refused;  // else both ends are satisfied, and
  Session session;                 // how they go on
  uint16_t port = 0;  // where the server says it listens: not where we knocked, if somebody relays
};

/// The client's side without the socket.
class TRIREME_API ClientHandshake {
 public:
  /// `server`: for texts.
  ClientHandshake(const Credentials& own, std::string server);
  /// The frame that begins it.
  const std::string& hello() const { return hello_; }
  /// The frame to send next, "" for none. Corrupt for a stranger's frame.
  std::string on_frame(const Frame& frame);
  bool done() const { return done_; }
  /// Once done.
  Entry take_entry() { return std::move(entry_); }

 private:
  std::string on_challenge(const Frame& frame);
  void on_welcome(const Frame& frame);
  void say_no(Refusal code, std::string text);

  const Credentials& own_;
  const std::string server_;
  std::string hello_;
  std::optional<HandshakeKeys> keys_;  // once challenged
  bool done_ = false;
  Entry entry_;
};

/// Throws what the connection throws (PeerLost, Timeout), Corrupt or Mismatch for a stranger's
/// bytes.
TRIREME_API Entry try_authenticate(Socket& socket, const Credentials& own, Deadline deadline);

/// The same, with a refusal as UsageError that says what to do.
TRIREME_API Session authenticate_as_client(Socket& socket, const Credentials& own,
                                           Deadline deadline);
/// UsageError when the client was refused, after telling it so.
TRIREME_API Session authenticate_as_server(Socket& socket, const Credentials& own,
                                           Deadline deadline);

/// What a refusal's frame says; nullopt for a frame of another kind. Corrupt.
TRIREME_API std::optional<Refused> read_refusal(const Frame& frame);

/// One sentence with what to do; `other` is who refused or was refused.
TRIREME_API std::string refusal_sentence(const std::string& other, const Refused& refused,
                                         bool we_refused);

}  // namespace trireme::net
