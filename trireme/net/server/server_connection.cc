// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/server/server_connection.h"

#include <string_view>
#include <utility>

#include "trireme/net/server/server.h"

namespace trireme::net {

ServerConnection::ServerConnection(Server& server, uint64_t id, Socket socket,
                                   const Credentials& credentials, std::string source,
                                   uint16_t port, Deadline limit)
    : server(server),
      id(id),
      is_tcp(port != 0),
      socket(std::move(socket)),
      handshake(std::make_unique<ServerHandshake>(credentials, port)),
      source(std::move(source)),
      limit(limit) {}

void ServerConnection::ready(uint32_t events) { server.serve(*this, events); }

bool ServerConnection::read() {
  char bytes[1 << 16];
  // A stranger gets no more room than one message of his could need.
  size_t room = state == State::handshake ? kFrameHeaderBytes + kMaxPayloadBefore : sizeof bytes;
  auto n = socket.recv_now(bytes, room);
  if (!n) return true;
  if (*n == 0) return false;
  if (state != State::closing) in.feed({bytes, *n});
  return true;
}

void ServerConnection::flush() {
  while (has_output()) {
    auto n = socket.send_now(std::string_view(out).substr(sent));
    if (!n) return;
    sent += *n;
  }
  if (!out.empty()) {
    out = std::string();  // gives a large value's memory back
    sent = 0;
    if (state == State::closing) socket.shutdown_write();
  }
}

void ServerConnection::reply(std::string frame) {
  frame = session.seal(std::move(frame));
  if (out.empty()) {
    out = std::move(frame);
  } else {
    out += frame;
  }
  flush();
}

}  // namespace trireme::net
