// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/channel/channel.h"
#include "trireme/net/auth.h"
#include "trireme/net/endpoint.h"

namespace trireme::channel {

struct TcpOptions {
  Peer self;  // our name, of at most 256 bytes, and the job's generation: peers of another are
              // refused
  net::Credentials credentials;
  /// The interface that peers reach, not all (0.0.0.0); port 0: one that the kernel chooses.
  net::Endpoint at = net::Endpoint::tcp({"127.0.0.1", 0});
  /// Of channels that peers open. None: all are refused.
  Accept accept;
  /// How long serve() asks again and again before it sleeps: a wake-up less for each message that
  /// comes in that time, for a CPU that does nothing else.
  Duration spin = Duration::zero();
  /// What StoreServer::Options has under these names.
  size_t max_channels = 16384;
  size_t max_pending = 64;
  Duration handshake_limit = net::kHandshakeLimit;
};

/// Messages between hosts. Who comes in proves the job's secret and is of our generation. Where
/// there is a secret, every byte is sealed (net/seal.h): whoever is between two workers can delay
/// and cut. Bodies are received where they stay. A peer's host that vanishes is noticed within
/// seconds (net/link.h), by a thread that serves; a stopped process is not a lost one. A channel
/// that nobody uses stays open.
///
/// Small messages and the first chunks of long ones leave in send() while the socket has room, the
/// rest in the thread in serve(). A receiver may be called before open() has returned. While open()
/// waits and no other thread serves, peers who open channels to this hub are let in on its thread,
/// and `accept` is called there. Receivers and `accept` may send and close, and may not open or
/// serve (UsageError).
///
/// Destroyed while no thread is in a call of it: its channels close, peers learn so, receivers hear
/// nothing more. Channels and bodies may live on. A forked child may use none of it (UsageError).
/// Throws UsageError (options) and ResourceError (the port is taken, no descriptors).
TRIREME_API std::unique_ptr<Hub> tcp_hub(TcpOptions options);

}  // namespace trireme::channel
