// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/net/auth.h"
#include "trireme/net/frame.h"
#include "trireme/net/seal.h"
#include "trireme/net/socket.h"
#include "trireme/store/protocol.h"

namespace trireme::detail {

/// One client of a StoreServer: its bytes in both directions and where it stands. The loop decides;
/// this only moves bytes.
struct Connection {
  enum class State {
    handshake,
    open,
    closing,  // refused: the reply goes out, then whatever comes is thrown away until the other end
              // closes
  };

  /// `port`: of the TCP listener that it came to; 0: it came to a Unix socket.
  Connection(uint64_t id, net::Socket socket, const net::Credentials& credentials,
             std::string source, uint16_t port, Deadline limit)
      : id(id),
        is_tcp(port != 0),
        socket(std::move(socket)),
        handshake(std::make_unique<net::ServerHandshake>(credentials, port)),
        source(std::move(source)),
        limit(limit) {}

  /// One read. False when the other end closed.
  bool read();
  /// Sends what it can of `out`.
  void flush();
  bool has_output() const { return sent < out.size(); }
  /// A frame as it goes out: sealed where the handshake said so.
  void reply(std::string frame);
  /// While a reply is going out or a wait is on, the next request stays where it is: in the
  /// sender's kernel.
  bool wants_input() const { return state == State::closing || (!waiting && !has_output()); }

  const uint64_t id;
  const bool is_tcp;
  net::Socket socket;
  std::unique_ptr<net::ServerHandshake> handshake;
  net::Session session;  // once it is open; what comes in is checked by `in`
  std::string source;    // without the port: refusals are told once per source
  State state = State::handshake;
  bool proved = false;  // who it is, in the handshake
  Deadline limit;       // of handshake and closing
  net::FrameParser in;
  std::string out;
  size_t sent = 0;
  uint32_t interest = 0;  // what epoll was told

  /// A get or wait that is not answered yet.
  std::optional<Request> waiting;
  std::unordered_set<std::string> absent;
  Deadline wait_until = Deadline::never();

  struct Will {
    std::string key, value;
    size_t room = 0;  // kept for it in the table
  };
  std::optional<Will> will;
  Deadline link_check = Deadline::never();  // while something is on its way
};

}  // namespace trireme::detail
