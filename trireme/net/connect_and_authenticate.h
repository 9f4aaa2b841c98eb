// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/net/auth.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"

namespace trireme::detail {

/// What one attempt to enter a store came to.
struct ConnectAttempt {
  std::optional<net::Socket> socket;    // we are in
  net::Session session;                 // then: for all that follows
  uint16_t port = 0;                    // then: where the store says it listens
  bool answered = false;                // somebody took the connection
  bool nobody_listens = false;          // the host says so
  std::optional<net::Refused> refused;  // somebody who speaks our protocol said no
  bool stranger = false;                // something listens there that is no store of ours
  bool other_release = false;           // a store of a Trireme that speaks another protocol
  std::string why;                      // of each case but the first
};

/// Connects once and proves who we are, within `limit` for an answer. Throws UsageError when a Unix
/// socket belongs to another user.
TRIREME_API ConnectAttempt connect_and_authenticate(const net::Endpoint& at,
                                                    const net::Credentials& credentials,
                                                    Deadline deadline,
                                                    Duration limit = net::kHandshakeLimit);

/// Tries again until the store accepts this rank. UsageError for a refusal that time does not mend
/// or a stranger, Mismatch for another release of Trireme, Timeout otherwise.
TRIREME_API ConnectAttempt connect_and_authenticate_until(const net::Endpoint& at,
                                                          const net::Credentials& credentials,
                                                          Deadline deadline);

}  // namespace trireme::detail
