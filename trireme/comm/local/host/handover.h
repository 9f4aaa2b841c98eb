// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/comm/local/control.h"

// The messages on the Unix socket between two ranks, which always carry descriptors.
namespace trireme::local {

enum class MessageKind : uint32_t { hello = 1, window = 2 };

constexpr uint32_t kMessageMagic = 0x4d657254;  // "TreM"

struct Message {
  uint32_t magic = kMessageMagic;
  uint32_t version = kControlVersion;
  MessageKind kind;
  int32_t rank;
  uint64_t generation;
  uint64_t bytes;   // of the window, or of the control memory
  uint32_t window;  // its number
  uint32_t spare = 0;
  char token[32];
};

struct Received {
  Message message;
  std::vector<UniqueFd> fds;
  bool cut = false;  // there was no room for all descriptors
};

/// Returns false if nothing happened before the deadline.
bool wait_for(int fd, short events, const Deadline& deadline);

/// Returns false if the socket is full. Throws PeerLost.
bool try_send(int socket, const Message& message, const std::vector<int>& fds, int peer);
/// Throws Timeout or PeerLost.
void send_message(int socket, const Message& message, const std::vector<int>& fds, int peer,
                  Deadline deadline);
/// Throws Timeout, PeerLost or Corrupt, and Mismatch if the peer is of another build.
Received receive_message(int socket, int peer, Deadline deadline);

}  // namespace trireme::local
