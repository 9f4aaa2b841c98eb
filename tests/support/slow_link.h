// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"

namespace trireme::testing {

/// A process that passes TCP connections on to a port of loopback, as a poor link would: late, and
/// so many bytes a second in each direction of each connection. A process and not a thread, because
/// tests fork beside it.
class SlowLink {
 public:
  struct Poor {
    Duration delay{};
    double bytes_per_s = 1e12;
  };

  SlowLink(int to, const Poor& poor) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    if (::bind(listener, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        ::listen(listener, 64) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0)
      fail<ResourceError>("no port for a slow link: {}", errno_text());
    port_ = ntohs(at.sin_port);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::signal(SIGPIPE, SIG_IGN);
      pass_on(listener, to, poor);
    }
    ::close(listener);
  }
  ~SlowLink() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  SlowLink(const SlowLink&) = delete;
  int port() const { return port_; }

 private:
  struct Chunk {
    Clock::time_point due;
    std::string bytes;
  };
  struct Way {  // from one socket to the other
    int from, to;
    std::deque<Chunk> chunks;
    Clock::time_point free_at;  // of the line
    bool ended = false;
  };

  static sockaddr_in loopback(int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }

  [[noreturn]] static void pass_on(int listener, int to, const Poor& poor) {
    std::vector<std::unique_ptr<Way>> ways;
    while (true) {
      std::vector<pollfd> fds{{listener, POLLIN, 0}};
      for (const auto& way : ways) fds.push_back({way->ended ? -1 : way->from, POLLIN, 0});
      ::poll(fds.data(), fds.size(), ways.empty() ? 1000 : 1);
      if (fds[0].revents) open(listener, to, ways);
      for (size_t i = 0; i + 1 < fds.size(); ++i)
        if (fds[i + 1].revents) take(*ways[i], poor);
      for (auto& way : ways) give(*way);
      std::erase_if(ways, [](const auto& way) { return way->from < 0; });
    }
  }
  static void open(int listener, int to, std::vector<std::unique_ptr<Way>>& ways) {
    const int near = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(to);
    if (near < 0 || ::connect(far, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
      ::close(near);
      ::close(far);
      return;
    }
    const int one = 1;
    for (int fd : {near, far}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (auto [a, b] : {std::pair{near, far}, {far, near}})
      ways.push_back(std::make_unique<Way>(Way{a, b, {}, Clock::now(), false}));
  }
  static void take(Way& way, const Poor& poor) {
    char bytes[1024];
    const ssize_t n = ::recv(way.from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) return;
    const auto now = Clock::now();
    way.free_at = std::max(way.free_at, now) +
                  std::chrono::duration_cast<Duration>(
                      std::chrono::duration<double>(static_cast<double>(n) / poor.bytes_per_s));
    way.chunks.push_back({way.free_at + poor.delay, std::string(bytes, static_cast<size_t>(n))});
    way.ended = n == 0;
  }
  static void give(Way& way) {
    while (!way.chunks.empty() && way.chunks.front().due <= Clock::now()) {
      const std::string& bytes = way.chunks.front().bytes;
      if (bytes.empty() ||
          ::send(way.to, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        // Both directions end: who passes on keeps no half of a connection.
        ::shutdown(way.from, SHUT_RDWR);
        ::shutdown(way.to, SHUT_RDWR);
        way.from = -1;
        return;
      }
      way.chunks.pop_front();
    }
  }

  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace trireme::testing
