// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "trireme/base/check.h"
#include "trireme/net/address.h"
#include "trireme/net/link.h"

namespace trireme::net {
namespace {

bool would_wait(int code) { return code == EAGAIN || code == EWOULDBLOCK; }

bool is_gone(int code) {
  return code == EPIPE || code == ECONNRESET || code == ECONNABORTED || code == ETIMEDOUT ||
         code == EHOSTUNREACH || code == ENETUNREACH || code == ENETDOWN;
}

[[noreturn]] void fail_io(const char* what, const std::string& peer, int code) {
  if (is_gone(code)) fail<PeerLost>("the connection to {} is gone: {}", peer, errno_text(code));
  fail<ResourceError>("cannot {} {}: {}", what, peer, errno_text(code));
}

}  // namespace

std::string_view descriptor_hint(int code) {
  return code == EMFILE || code == ENFILE ? "; raise the limit of open files (ulimit -n)" : "";
}

bool poll_until(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    int n = ::poll(&p, 1, deadline.poll_ms(1000));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) fail<ResourceError>("poll failed: {}", errno_text());
    if (deadline.expired()) return false;
  }
}

Socket::Socket(UniqueFd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {
  int flags = ::fcntl(fd_.get(), F_GETFL);
  bool ok = flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) == 0 &&
            ::fcntl(fd_.get(), F_SETFD, FD_CLOEXEC) == 0;
  check<ResourceError>(ok, "cannot set up the socket to {}: {}", peer_, errno_text());
}

std::optional<size_t> Socket::send_now(std::string_view bytes) {
  while (true) {
    ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EINTR) continue;
    if (would_wait(errno)) return std::nullopt;
    fail_io("send to", peer_, errno);
  }
}

std::optional<size_t> Socket::recv_now(char* to, size_t bytes) {
  while (true) {
    ssize_t n = ::recv(fd_.get(), to, bytes, 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EINTR) continue;
    if (would_wait(errno)) return std::nullopt;
    fail_io("receive from", peer_, errno);
  }
}

std::string Socket::local_host() const {
  SocketAddress here;
  here.length = sizeof here.storage;
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&here.storage), &here.length) != 0)
    fail<ResourceError>("cannot ask for a connection's own address: {}", errno_text());
  return parse_address(here.text()).host;
}

void Socket::send_all(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (auto n = send_now(bytes)) {
      bytes.remove_prefix(*n);
    } else if (!wait_writable(deadline)) {
      fail<Timeout>("{} took nothing more before the deadline", peer_);
    }
  }
}

void Socket::recv_all(char* to, size_t bytes, Deadline deadline) {
  while (bytes > 0) {
    if (auto n = recv_now(to, bytes)) {
      check<PeerLost>(*n > 0, "{} closed the connection", peer_);
      to += *n;
      bytes -= *n;
    } else if (!wait_readable(deadline)) {
      fail<Timeout>("nothing arrived from {} before the deadline", peer_);
    }
  }
}

bool Socket::wait_for(short events, Deadline deadline) const {
  while (!poll_until(fd_.get(), events, sooner(deadline, kLinkCheckEvery))) {
    check<PeerLost>(
        link_of(fd_.get()) != Link::cut,
        "the connection to {} is gone: its host acknowledges nothing any more (link cut, "
        "or host down)",
        peer_);
    if (deadline.expired()) return false;
  }
  return true;
}
bool Socket::wait_readable(Deadline deadline) const { return wait_for(POLLIN, deadline); }
bool Socket::wait_writable(Deadline deadline) const { return wait_for(POLLOUT, deadline); }

void Socket::shutdown_write() { ::shutdown(fd_.get(), SHUT_WR); }

PeerCredentials peer_credentials(const Socket& socket) {
  ucred who{};
  socklen_t size = sizeof who;
  bool ok = ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
  check<ResourceError>(ok, "cannot identify the process at the other end of {}: {}", socket.peer(),
                       errno_text());
  return {who.pid, who.uid};
}

void check_same_user(const Socket& socket) {
  auto who = peer_credentials(socket);
  check<UsageError>(
      who.uid == ::geteuid(),
      "{} belongs to user {} (process {}), not to user {}: run all ranks of a job as one user",
      socket.peer(), who.uid, who.pid, ::geteuid());
}

}  // namespace trireme::net
