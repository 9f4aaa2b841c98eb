// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/net/frame.h"
#include "trireme/net/secret.h"
#include "trireme/net/socket.h"

// Who may join: both ends prove that they know the job's secret, and neither shows it.
//   client → hello     flags, job id, client nonce
//   server → challenge flags, server nonce                      or refused
//   client → proof     HMAC-SHA256(secret, "client", job id, both nonces)
//   server → welcome   HMAC-SHA256(secret, "server", job id, both nonces)   or refused
// Fresh nonces: a recorded handshake is worth nothing. Roles are in the MAC: a message sent back at
// its author proves nothing. Whoever has a secret deals with nobody who has none. Without one (a
// Unix socket whose peer's uid the kernel told, or TRIREME_INSECURE=1) the same four messages run
// under a public key: then they only tell one job from another. What follows on the connection is
// not encrypted: somebody who can rewrite packets between the hosts is not kept out.
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

/// The server's side without the socket: frames in, frames out.
class TRIREME_API ServerHandshake {
 public:
  explicit ServerHandshake(const Credentials& own);
  struct Step {
    std::string reply;  // a whole frame to send
    bool done = false;
    std::optional<Refused> refused;  // send the reply, then close
  };
  Step on_frame(const Frame& frame);
  /// The reply for bytes that are no frame.
  static Step refuse(Refusal code, std::string text);

 private:
  Step on_hello(const Frame& frame);
  Step on_proof(const Frame& frame);

  const Credentials& own_;
  std::string client_nonce_;
  std::string server_nonce_;
  bool challenged_ = false;
};

/// nullopt: both ends are satisfied. Throws what the connection throws (PeerLost, Timeout), Corrupt
/// or Mismatch for a stranger's bytes.
TRIREME_API std::optional<Refused> try_authenticate(Socket& socket, const Credentials& own,
                                                    Deadline deadline);

/// The same, with a refusal as UsageError that says what to do.
TRIREME_API void authenticate_as_client(Socket& socket, const Credentials& own, Deadline deadline);
/// UsageError when the client was refused, after telling it so.
TRIREME_API void authenticate_as_server(Socket& socket, const Credentials& own, Deadline deadline);

/// One sentence with what to do; `other` is who refused or was refused.
TRIREME_API std::string refusal_sentence(const std::string& other, const Refused& refused,
                                         bool we_refused);

}  // namespace trireme::net
