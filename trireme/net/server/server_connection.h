// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/net/auth.h"
#include "trireme/net/frame.h"
#include "trireme/net/seal.h"
#include "trireme/net/server/event_loop.h"
#include "trireme/net/socket.h"

namespace trireme::net {

class Server;

/// One connection of a Server: its bytes in both directions and where it stands. The server
/// decides; this only moves bytes.
struct TRIREME_API ServerConnection final : EventHandler {
  enum class State {
    handshake,
    open,
    closing,  // refused: the reply goes out, then whatever comes is thrown away until the other end
              // closes
  };

  /// `port`: of the TCP listener that it came to; 0: it came to a Unix socket.
  ServerConnection(Server& server, uint64_t id, Socket socket, const Credentials& credentials,
                   std::string source, uint16_t port, Deadline limit);

  void ready(uint32_t events) override;  // it may be gone afterwards
  /// One read. False when the other end closed.
  bool read();
  /// Sends what it can of `out`.
  void flush();
  bool has_output() const { return sent < out.size(); }
  /// A frame as it goes out: sealed where the handshake said so.
  void reply(std::string frame);
  /// While a reply is going out or the user has paused it, the next frame stays where it is: in
  /// the sender's kernel.
  bool wants_input() const { return state == State::closing || (!paused && !has_output()); }

  Server& server;
  const uint64_t id;
  const bool is_tcp;
  Socket socket;
  std::unique_ptr<ServerHandshake> handshake;
  Session session;     // once it is open; what comes in is checked by `in`
  std::string source;  // without the port: refusals are told once per source
  State state = State::handshake;
  bool proved = false;                      // who it is, in the handshake
  bool paused = false;                      // by the server's user
  Deadline limit;                           // of handshake and closing, and what the user sets
  Deadline link_check = Deadline::never();  // while something is on its way
  FrameParser in;
  std::string out;
  size_t sent = 0;
  uint32_t interest = 0;  // what epoll was told
};

}  // namespace trireme::net
