// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme::net {

/// A connected stream socket: non-blocking underneath, every call bounded by a Deadline, no
/// SIGPIPE, closed on exec. Threads: one sends and one receives at a time. Failure: PeerLost when
/// the other end is gone, Timeout when the deadline passed (bytes may have moved: drop the
/// connection), ResourceError for the rest.
class TRIREME_API Socket {
 public:
  Socket() = default;
  /// Takes the descriptor; `peer` names the other end in texts.
  Socket(UniqueFd fd, std::string peer);

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  /// This end's numeric address, without the port.
  std::string local_host() const;

  void send_all(std::string_view bytes, Deadline deadline);
  void recv_all(char* to, size_t bytes, Deadline deadline);

  /// One attempt. nullopt: would have to wait. recv_now: 0 = the other end closed.
  std::optional<size_t> send_now(std::string_view bytes);
  std::optional<size_t> recv_now(char* to, size_t bytes);

  /// False when the deadline passed first. PeerLost when the link is cut (net/link.h).
  bool wait_readable(Deadline deadline) const;
  bool wait_writable(Deadline deadline) const;
  /// No more sending; the other end reads an end.
  void shutdown_write();
  void close() { fd_.reset(); }

 private:
  bool wait_for(short events, Deadline deadline) const;

  UniqueFd fd_;
  std::string peer_;
};

/// poll(2) one descriptor until `events` (or an error, or a hang-up) shows; false when the deadline
/// passed first.
TRIREME_API bool poll_until(int fd, short events, Deadline deadline);

/// What to do about an errno that says that there are too many open files, for the end of a text;
/// "" for any other.
TRIREME_API std::string_view descriptor_hint(int code);

/// The sooner of `deadline` and `limit` from now.
inline Deadline sooner(Deadline deadline, Duration limit) {
  return deadline.remaining() < limit ? deadline : Deadline::after(limit);
}

/// Who is at the other end of a Unix socket, said by the kernel.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
TRIREME_API PeerCredentials peer_credentials(const Socket& socket);
/// UsageError unless the process at the other end belongs to our own effective user.
TRIREME_API void check_same_user(const Socket& socket);

}  // namespace trireme::net
