// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/fd_passing.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "trireme/base/check.h"

namespace trireme::net {

void send_fds(Socket& socket, std::span<const int> fds, std::string_view payload,
              Deadline deadline) {
  check<UsageError>(!payload.empty(), "send_fds: descriptors travel with at least one byte");
  check<UsageError>(fds.size() <= kMostFdsAtOnce, "send_fds: {} descriptors at once, at most {}",
                    fds.size(), kMostFdsAtOnce);
  if (fds.empty()) return socket.send_all(payload, deadline);
  std::vector<char> control(CMSG_SPACE(fds.size_bytes()));
  iovec part{const_cast<char*>(payload.data()), payload.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  while (true) {
    ssize_t n = ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL);
    if (n >= 0) return socket.send_all(payload.substr(static_cast<size_t>(n)), deadline);
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      check<Timeout>(poll_until(socket.fd(), POLLOUT, deadline),
                     "{} took no descriptors before the deadline", socket.peer());
      continue;
    }
    check<PeerLost>(errno != EPIPE && errno != ECONNRESET, "{} closed the connection",
                    socket.peer());
    fail<ResourceError>("cannot send descriptors to {}: {}", socket.peer(), errno_text());
  }
}

ReceivedFds recv_fds(Socket& socket, size_t most, size_t payload_bytes, Deadline deadline) {
  check<UsageError>(payload_bytes > 0, "recv_fds: descriptors travel with at least one byte");
  ReceivedFds out;
  out.payload.resize(payload_bytes);
  std::vector<char> control(CMSG_SPACE(kMostFdsAtOnce * sizeof(int)));
  iovec part{out.payload.data(), out.payload.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t n = -1;
  while (true) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    n = ::recvmsg(socket.fd(), &message, MSG_CMSG_CLOEXEC);
    if (n >= 0) break;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      check<Timeout>(socket.wait_readable(deadline),
                     "no descriptors came from {} before the deadline", socket.peer());
      continue;
    }
    check<PeerLost>(errno != ECONNRESET, "{} closed the connection", socket.peer());
    fail<ResourceError>("cannot receive descriptors from {}: {}", socket.peer(), errno_text());
  }
  // Own them before anything can throw.
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      out.fds.emplace_back(fd);
    }
  }
  check<PeerLost>(n > 0, "{} closed the connection", socket.peer());
  check<ResourceError>(
      !(message.msg_flags & MSG_CTRUNC),
      "could not take the descriptors from {}: raise the limit of open files (ulimit -n)",
      socket.peer());
  check<Corrupt>(out.fds.size() <= most, "{} sent {} descriptors where at most {} are due",
                 socket.peer(), out.fds.size(), most);
  socket.recv_all(out.payload.data() + n, payload_bytes - static_cast<size_t>(n), deadline);
  return out;
}

}  // namespace trireme::net
