// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/host/handover.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "trireme/base/check.h"

namespace trireme::local {

bool wait_for(int fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    int n = ::poll(&p, 1, deadline.poll_ms(1000));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (deadline.expired()) return false;
  }
}

bool try_send(int socket, const Message& message, const std::vector<int>& fds, int peer) {
  iovec io{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr h{};
  h.msg_iov = &io;
  h.msg_iovlen = 1;
  h.msg_control = control;
  h.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* c = CMSG_FIRSTHDR(&h);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  const ssize_t n = ::sendmsg(socket, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == static_cast<ssize_t>(sizeof message)) return true;
  check<PeerLost>(n < 0 && (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS),
                  "rank {} closed its socket: {}", peer, errno_text());
  return false;
}

void send_message(int socket, const Message& message, const std::vector<int>& fds, int peer,
                  Deadline deadline) {
  while (!try_send(socket, message, fds, peer))
    check<Timeout>(wait_for(socket, POLLOUT, deadline) && !deadline.expired(),
                   "rank {} does not take shared memory: it is stuck or stopped", peer);
}

Received receive_message(int socket, int peer, Deadline deadline) {
  Received r;
  iovec io{&r.message, sizeof r.message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  while (true) {
    msghdr h{};
    h.msg_iov = &io;
    h.msg_iovlen = 1;
    h.msg_control = control;
    h.msg_controllen = sizeof control;
    ssize_t n = ::recvmsg(socket, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_WAITALL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      check<Timeout>(wait_for(socket, POLLIN, deadline), "rank {} does not send its shared memory",
                     peer);
      continue;
    }
    check<PeerLost>(n > 0, "rank {} closed its socket while shared memory was exchanged", peer);
    r.cut = h.msg_flags & MSG_CTRUNC;
    for (cmsghdr* c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      int count = static_cast<int>((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      for (int i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + static_cast<size_t>(i) * sizeof(int), sizeof fd);
        r.fds.emplace_back(fd);
      }
    }
    check<Corrupt>(n == sizeof r.message && r.message.magic == kMessageMagic,
                   "rank {} sent an invalid message on the shared-memory socket", peer);
    check<Mismatch>(r.message.version == kControlVersion,
                    "rank {} speaks version {} of the shared-memory protocol, this process version "
                    "{}: use one build",
                    peer, r.message.version, kControlVersion);
    return r;
  }
}

}  // namespace trireme::local
