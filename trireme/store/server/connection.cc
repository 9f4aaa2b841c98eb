// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/server/connection.h"

namespace trireme::detail {

bool Connection::read() {
  char bytes[1 << 16];
  // A stranger gets no more room than one message of his could need.
  size_t room =
      state == State::handshake ? net::kFrameHeaderBytes + net::kMaxPayloadBefore : sizeof bytes;
  auto n = socket.recv_now(bytes, room);
  if (!n) return true;
  if (*n == 0) return false;
  if (state != State::closing) in.feed({bytes, *n});
  return true;
}

void Connection::flush() {
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

void Connection::reply(std::string frame) {
  frame = session.seal(std::move(frame));
  if (out.empty()) {
    out = std::move(frame);
  } else {
    out += frame;
  }
  flush();
}

}  // namespace trireme::detail
