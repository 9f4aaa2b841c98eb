// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/net/frame.h"
#include "trireme/net/seal.h"
#include "trireme/net/socket.h"

// An echo over TCP with the seals of the house and nothing else, to compare with.
namespace trireme::bare {

constexpr size_t kEmpty = 8;  // the payload of an empty message's frame

/// The CPUs that this process may use, the first and the last.
inline std::pair<int, int> two_cpus() {
  cpu_set_t may;
  std::vector<int> all;
  if (::sched_getaffinity(0, sizeof may, &may) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &may)) all.push_back(i);
  if (all.empty()) std::exit(1);
  return {all.front(), all.back()};
}
inline void pin(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) std::exit(1);
}

/// One end of the echo: epoll, recv, check, sign, send.
class Echo {
 public:
  explicit Echo(net::Socket socket, char in, char out)
      : socket_(std::move(socket)), in_(std::string(32, in)), out_(std::string(32, out)) {
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket_.fd(), &event);
  }
  void say() {
    const auto frame = out_.sign(net::encode_frame(113, std::string(kEmpty, '\0')));
    socket_.send_all(frame, Deadline::never());
  }
  bool hear() {
    char bytes[4096];
    size_t have = 0;
    const size_t head = net::kFrameHeaderBytes, tag = net::Seal::kTagBytes;
    while (have < head + 2 * tag + kEmpty) {
      epoll_event event;
      ::epoll_wait(epoll_.get(), &event, 1, -1);
      if (const auto n = socket_.recv_now(bytes + have, sizeof bytes - have)) {
        if (*n == 0) return false;
        have += *n;
      }
    }
    in_.check_header({bytes, head}, {bytes + head, tag});
    in_.check_frame({bytes, head}, {bytes + head + tag, kEmpty},
                    {bytes + head + tag + kEmpty, tag});
    return true;
  }

 private:
  net::Socket socket_;
  UniqueFd epoll_;
  net::Seal in_, out_;
};

}  // namespace trireme::bare
