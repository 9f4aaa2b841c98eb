// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/connect.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/net/socket_options.h"

namespace trireme::net {
namespace {

// A firewall that drops packets answers nothing at all: do not spend the whole deadline on one
// attempt.
constexpr auto kOneAttempt = std::chrono::seconds(3);

/// The kernel may connect a socket to itself when its chosen port is the one asked for and nobody
/// listens there.
bool is_self_connected(int fd) {
  SocketAddress here, there;
  here.length = there.length = sizeof here.storage;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&here.storage), &here.length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.length) == 0 &&
         here.length == there.length &&
         std::memcmp(&here.storage, &there.storage, here.length) == 0;
}

/// 0 or an errno.
int connect_once(int fd, const SocketAddress& to, Deadline deadline) {
  if (::connect(fd, to.get(), to.length) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;  // EAGAIN: a Unix backlog is full
  if (!poll_until(fd, POLLOUT, sooner(deadline, kOneAttempt))) return ETIMEDOUT;
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0) return errno;
  return code;
}

}  // namespace

BackOff::BackOff(Duration first, Duration longest)
    : next_ms_(std::chrono::duration<double, std::milli>(first).count()),
      longest_ms_(std::chrono::duration<double, std::milli>(longest).count()),
      state_(stable_hash({static_cast<uint64_t>(now_ns()), static_cast<uint64_t>(::getpid()),
                          reinterpret_cast<uintptr_t>(this)})) {}

bool BackOff::pause(Deadline deadline) {
  if (deadline.expired()) return false;
  state_ = mix64(state_ + 0x9E3779B97F4A7C15u);
  double jitter = 0.75 + 0.5 * uniform01(static_cast<uint32_t>(state_ >> 32));
  auto wait = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(next_ms_ * jitter));
  std::this_thread::sleep_for(std::min(wait, deadline.remaining()));
  next_ms_ = std::min(next_ms_ * 1.6, longest_ms_);
  return true;
}

std::optional<Socket> try_connect(const Endpoint& to, Deadline deadline, std::string* why,
                                  bool* refused) {
  if (refused) *refused = false;
  std::vector<SocketAddress> addresses;
  if (to.is_unix()) {
    addresses = {abstract_address(to.name)};
  } else {
    try {
      addresses = resolve(to.address);
    } catch (const ResourceError& error) {  // a name may appear later, as a pod's does
      UniqueFd room(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      int code = errno;
      check<ResourceError>(room || descriptor_hint(code).empty(), "cannot resolve host '{}': {}{}",
                           to.address.host, errno_text(code), descriptor_hint(code));
      *why = error.what();
      return std::nullopt;
    }
  }
  size_t refusals = 0;
  for (const auto& address : addresses) {
    UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd && errno == EAFNOSUPPORT) {
      *why = errno_text();
      continue;
    }
    check<ResourceError>(static_cast<bool>(fd),
                         "cannot make a socket: {}; raise the limit of open files (ulimit -n)",
                         errno_text());
    int code = connect_once(fd.get(), address, deadline);
    if (code == 0 && !to.is_unix() && is_self_connected(fd.get())) code = ECONNREFUSED;
    if (code == 0) {
      if (!to.is_unix()) set_tcp_options(fd.get());
      return Socket(std::move(fd), to.text());
    }
    *why = errno_text(code);
    refusals += code == ECONNREFUSED;
  }
  if (refused) *refused = !addresses.empty() && refusals == addresses.size();
  return std::nullopt;
}

Socket connect(const Endpoint& to, Deadline deadline, const OnRetry& on_retry) {
  auto start = Clock::now();
  BackOff back_off;
  bool warned = false;
  std::string why;
  while (true) {
    if (auto socket = try_connect(to, deadline, &why)) return std::move(*socket);
    if (on_retry) on_retry(why);
    if (!warned && seconds_since(start) > 5) {
      warned = true;
      log_warn("still no connection to {} after 5 s: {}; trying on", to.text(), why);
    }
    check<Timeout>(back_off.pause(deadline),
                   "no connection to {} within {:.1f} s: {}. Is the process that should listen "
                   "there running, and is the "
                   "address right?",
                   to.text(), seconds_since(start), why);
  }
}

}  // namespace trireme::net
