// SPDX-License-Identifier: Apache-2.0
// A channel's half of the thread that serves: what comes, and how it ends.
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/channel/tcp/tcp_channel.h"
#include "trireme/net/link.h"

namespace trireme::channel::tcp {
namespace {

constexpr size_t kMostReadAtOnce = size_t{1} << 20;  // then others get their turn
constexpr Duration kLinger = std::chrono::seconds(1);

}  // namespace

std::string TcpChannel::whose() const {
  return fmt::format("worker '{}' at {}", peer_.name, socket_.peer());
}

void TcpChannel::ready(uint32_t events) {
  const auto self = shared_from_this();
  try {
    if (events & EPOLLOUT) writable();
  } catch (const std::exception& error) {  // no memory to watch it
    broke(error.what());
  }
  if (events & ~uint32_t{EPOLLOUT}) readable();
}

void TcpChannel::readable() {
  size_t come = 0;
  while (watched_ && come < kMostReadAtOnce) {
    if (ended_) return throw_away();
    try {
      const Inbox::Room room = inbox_.room();
      const ssize_t n = ::readv(socket_.fd(), room.parts, room.count);
      if (n == 0) return lost(whose() + " is gone: its connection ended without a word");
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0) return lost(fmt::format("{} is gone: {}", whose(), errno_text()));
      inbox_.came(static_cast<size_t>(n));
      come += static_cast<size_t>(n);
      take_news();
      if (static_cast<size_t>(n) < room.bytes()) return;  // that was all, or epoll tells
    } catch (const std::exception& error) {
      return broke(error.what());
    }
  }
}

void TcpChannel::take_news() {
  while (!ended_) {
    auto news = inbox_.next();
    if (!news) return;
    on_news(std::move(*news));
  }
}

void TcpChannel::on_news(Inbox::News news) {
  if (news.message) {
    ++road_->calls;
    if (receiver_) receiver_->received(std::move(*news.message));
  } else if (news.we_took) {
    acknowledge(*news.we_took);
  } else if (news.they_took) {
    {
      std::lock_guard lock(mutex_);
      outbox_.peer_took(*news.they_took);
      if (writing_ || full_) return;
      writing_ = true;
    }
    write();
  } else {
    lost(fmt::format("{} closed the channel: {}", whose(), *news.closing));
  }
}

void TcpChannel::acknowledge(uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    outbox_.tell_taken(bytes);
    if (writing_ || full_) return;
    writing_ = true;
  }
  write();
}

/// After the end: the other side is to hear why, so what it says yet is taken off the wire, until
/// it closes.
void TcpChannel::throw_away() {
  char bytes[size_t{16} << 10];
  for (size_t come = 0; come < kMostReadAtOnce;) {
    const ssize_t n = ::recv(socket_.fd(), bytes, sizeof bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return forget();
    come += static_cast<size_t>(n);
  }
}

void TcpChannel::lost(const std::string& why) {
  begin_end(why, false);
  call_closed();
  forget();
}

void TcpChannel::broke(const std::string& why) {
  begin_end(fmt::format("the channel to {} broke: {}", whose(), why), true);
  tell_closed();
}

void TcpChannel::tell_closed() {
  if (lingers_.is_never()) lingers_ = Deadline::after(kLinger);
  call_closed();
}

void TcpChannel::call_closed() {
  const auto receiver = std::exchange(receiver_, nullptr);
  if (!receiver) return;
  std::string why;
  {
    std::lock_guard lock(mutex_);
    why = why_;
  }
  ++road_->calls;
  receiver->closed(why);
}

void TcpChannel::check_link() {
  if (!wrote_.exchange(false, std::memory_order_relaxed)) return;
  const auto link = net::link_of(socket_.fd());
  if (link == net::Link::cut)
    return lost(whose() +
                " is gone: its host acknowledges nothing any more (link cut, or host "
                "down)");
  if (link == net::Link::busy) wrote_.store(true, std::memory_order_relaxed);
}

Deadline TcpChannel::linger() {
  if (lingers_.expired()) forget();
  return lingers_;
}

void TcpChannel::drop(const std::string& why) {
  begin_end(why, true);
  receiver_.reset();
  forget();
}

void TcpChannel::forget() {
  const auto self = shared_from_this();
  {
    std::lock_guard lock(road_->mutex);
    road_->channels.erase(self);
  }
  Remains remains;
  std::lock_guard lock(mutex_);
  if (!std::exchange(watched_, false)) return;
  road_->loop.forget(socket_.fd(), this);
  said_all_ = true;
  full_ = true;
  if (!writing_) stop(&remains);  // else who writes does so
}

}  // namespace trireme::channel::tcp
