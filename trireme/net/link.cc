// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/link.h"

#include <linux/sockios.h>
#include <linux/tcp.h>  // newer than glibc's netinet/tcp.h: tcpi_snd_wnd
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>

namespace trireme::net {
namespace {

// Together with kLinkCheckEvery under 4 s. Keepalive hears from an idle host every second, so an
// honest one is silent for this long only where several packets in a row were lost.
constexpr uint32_t kSilentMs = 3400;
constexpr uint32_t kAnswerMs = 200;  // what was sent a moment ago may still be answered

}  // namespace

Link link_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return Link::quiet;
  int queued = 0;
  if (::ioctl(fd, SIOCOUTQ, &queued) != 0 || queued == 0) return Link::quiet;
  // Whoever takes no more for now (a stopped process) has closed its window, and TCP asks it ever
  // more rarely: then silence means nothing. Kernels before 5.4 do not tell the window.
  bool knows_window = size >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  bool open_window = !knows_window || info.tcpi_snd_wnd > 0;
  // With this host's own interface down, nothing is even in flight.
  bool tried = info.tcpi_unacked > 0 || knows_window;
  bool cut = tried && open_window && info.tcpi_last_ack_recv >= kSilentMs &&
             info.tcpi_last_data_sent >= kAnswerMs;
  return cut ? Link::cut : Link::busy;
}

}  // namespace trireme::net
