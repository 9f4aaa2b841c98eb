// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace trireme::net {

/// For every TCP connection of ours: small messages leave at once, and a link that is cut is
/// noticed within 4 s where nothing is being sent (net/link.h: where something is). The kernel
/// answers the probes, so a stopped process is not a lost one. TCP_USER_TIMEOUT is left alone: it
/// also ends connections whose other end answers and takes nothing for that long, as a stopped
/// process's does once its window is full. Best effort: a kernel that refuses one of these still
/// carries the bytes.
inline void set_tcp_options(int fd) {
  int on = 1;
  int idle_s = 1;
  int interval_s = 1;
  int probes = 3;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace trireme::net
