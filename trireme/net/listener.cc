// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "trireme/base/check.h"
#include "trireme/net/socket_options.h"

namespace trireme::net {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn

uint16_t bound_port(int fd) {
  SocketAddress at;
  at.length = sizeof at.storage;
  bool ok = ::getsockname(fd, reinterpret_cast<sockaddr*>(&at.storage), &at.length) == 0;
  check<ResourceError>(ok, "cannot read the port of a listening socket: {}", errno_text());
  return ntohs(at.storage.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6&>(at.storage).sin6_port
                   : reinterpret_cast<sockaddr_in&>(at.storage).sin_port);
}

/// Whose process listens at a Unix name, as far as another user's goes; for a text.
std::string foreign_holder(const Endpoint& at) {
  SocketAddress to = abstract_address(at.name);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::connect(fd.get(), to.get(), to.length) != 0) return "";
  auto who = peer_credentials(Socket(std::move(fd), at.text()));
  if (who.uid == ::geteuid()) return "";
  return fmt::format("process {} of user {}", who.pid, who.uid);
}

}  // namespace

int Listener::open(const Endpoint& at) {
  SocketAddress address = at.is_unix() ? abstract_address(at.name) : resolve(at.address).front();
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int code = errno;
  check<ResourceError>(static_cast<bool>(fd), "cannot make a socket for {}: {}{}", at.text(),
                       errno_text(code), descriptor_hint(code));
  if (!at.is_unix()) {
    // Only past connections in TIME_WAIT are ignored by this; two listeners never share a port on
    // Linux.
    int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (::bind(fd.get(), address.get(), address.length) != 0) return errno;
  if (::listen(fd.get(), kBacklog) != 0) return errno;
  endpoint_ = at;
  if (!at.is_unix()) endpoint_.address.port = bound_port(fd.get());
  fd_ = std::move(fd);
  return 0;
}

Listener::Listener(const Endpoint& at) {
  int code = open(at);
  check<ResourceError>(
      code != EADDRINUSE || at.is_unix(),
      "port in use: cannot listen at {}; stop the program that holds the port (ss -ltnp shows it), "
      "choose another, or 0 for a free one",
      at.text());
  if (code == EADDRINUSE)
    if (auto holder = foreign_holder(at); !holder.empty())
      fail<ResourceError>(
          "socket name in use: {} holds {}; give this job another job id or MASTER_PORT", holder,
          at.text());
  check<ResourceError>(code != EADDRINUSE,
                       "socket name in use: cannot listen at {}; another job of this user with the "
                       "same job id runs on "
                       "this host: stop it, or give this one another job id or MASTER_PORT",
                       at.text());
  check<ResourceError>(
      code != EADDRNOTAVAIL,
      "cannot listen at {}: no interface of this host ({}) has that address; name one that has",
      at.text(), host_name());
  check<ResourceError>(code != EACCES, "cannot listen at {}: {}; choose a port above 1023",
                       at.text(), errno_text(code));
  check<ResourceError>(code == 0, "cannot listen at {}: {}", at.text(), errno_text(code));
}

std::optional<Listener> Listener::if_free(const Endpoint& at) {
  Listener one;
  int code = one.open(at);
  if (code == EADDRINUSE) return std::nullopt;
  check<ResourceError>(code == 0, "cannot listen at {}: {}", at.text(), errno_text(code));
  return one;
}

std::optional<Socket> Listener::accept_now() {
  while (true) {
    SocketAddress from;
    from.length = sizeof from.storage;
    UniqueFd fd(::accept4(fd_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      if (endpoint_.is_unix()) return Socket(std::move(fd), "a client of " + endpoint_.text());
      set_tcp_options(fd.get());
      return Socket(std::move(fd), from.text());
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    // The connection died between its arrival and now; the next one may be fine.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN ||
        errno == EHOSTDOWN || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EPERM)
      continue;
    fail<ResourceError>("cannot accept at {}: {}; raise the limit of open files (ulimit -n)",
                        endpoint_.text(), errno_text());
  }
}

Socket Listener::accept(Deadline deadline) {
  while (true) {
    if (auto socket = accept_now()) return std::move(*socket);
    check<Timeout>(poll_until(fd_.get(), POLLIN, deadline),
                   "nobody connected to {} before the deadline", endpoint_.text());
  }
}

}  // namespace trireme::net
