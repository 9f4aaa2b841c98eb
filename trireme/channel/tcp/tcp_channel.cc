// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/tcp_channel.h"

#include <sys/socket.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"

namespace trireme::channel::tcp {
namespace {

constexpr uint32_t kReads = EPOLLIN | EPOLLRDHUP;
constexpr size_t kMostAtOnce = size_t{1} << 20;  // then others get their turn

}  // namespace

TcpChannel::TcpChannel(std::shared_ptr<TcpRoad> road, net::Socket socket, net::Session session,
                       Peer peer)
    : road_(std::move(road)),
      peer_(std::move(peer)),
      socket_(std::move(socket)),
      out_(std::move(session.out)),
      inbox_(std::move(session.in)) {}

TcpChannel::~TcpChannel() = default;

bool TcpChannel::send(Message message) {
  road_->made_in.check("this channel");
  check_message(message);
  {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    outbox_.post(std::move(message));
    if (writing_ || full_) return true;  // whoever writes, or will, takes it along
    writing_ = true;
  }
  write();
  return true;
}

uint64_t TcpChannel::unsent() const {
  std::lock_guard lock(mutex_);
  return outbox_.unsent() + stuck_;
}

void TcpChannel::close(const std::string& why) {
  road_->made_in.check("this channel");
  if (begin_end(why, true)) let_tell();
}

/// The receiver is told by the thread that serves.
void TcpChannel::let_tell() {
  {
    std::lock_guard lock(road_->mutex);
    road_->to_end.push_back(shared_from_this());
    road_->any_to_end = true;
  }
  road_->loop.wake();
}

/// `tell`: the other end hears why. True: it has ended now, and had begun.
bool TcpChannel::begin_end(const std::string& why, bool tell) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    why_ = why;
    ended_ = true;
    stuck_ = 0;
    outbox_.close(why);
    if (!tell) said_all_ = true;
    if (writing_ || full_ || said_all_) return watched_;
    writing_ = true;
  }
  write();
  return true;
}

void TcpChannel::start(std::shared_ptr<Receiver> receiver, std::string greeting) {
  receiver_ = std::move(receiver);
  bool ended = false;
  {
    std::lock_guard road_lock(road_->mutex);
    std::lock_guard lock(mutex_);
    outbox_.greet(std::move(greeting));
    watched_ = true;  // before the thread that serves may hear of it
    try {
      road_->loop.watch(socket_.fd(), kReads, this);
    } catch (const ResourceError&) {
      watched_ = false;
      throw;
    }
    road_->channels.insert(shared_from_this());
    full_ = false;
    writing_ = true;
    ended = ended_;
  }
  write();
  if (ended) let_tell();  // by who accepted it
}

/// Nobody else writes meanwhile: writing_ is ours.
void TcpChannel::write() {
  size_t written = 0;
  try {
    while (true) {
      if (layout_.written()) {
        // What a long message is made of is freed with its last chunk.
        const Parcel gone = std::exchange(parcel_, {});
        Remains remains;  // the memory of both is freed without the lock
        std::lock_guard lock(mutex_);
        if (gone.closing) said_all_ = true;
        if (gone.closing && watched_) socket_.shutdown_write();
        if (!said_all_ && written >= kMostAtOnce) return rest(&remains);
        if (said_all_ || !outbox_.next(&parcel_)) return stop(&remains);
        outbox_.left(parcel_);  // it leaves now; what the socket does not take is in stuck_
      }
      if (layout_.written()) layout_.lay_out(parcel_, out_);
      msghdr what{};
      what.msg_iov = const_cast<iovec*>(layout_.pieces());
      what.msg_iovlen = static_cast<size_t>(layout_.count());
      const ssize_t n = ::sendmsg(socket_.fd(), &what, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        layout_.wrote(static_cast<size_t>(n));
        written += static_cast<size_t>(n);
        wrote_.store(true, std::memory_order_relaxed);
        continue;
      }
      if (errno == EINTR) continue;
      const int code = errno;
      Remains remains;
      std::lock_guard lock(mutex_);
      if (code == EAGAIN || code == EWOULDBLOCK) return rest(&remains);
      full_ = true;  // epoll tells the thread that serves that the connection is gone
      return stop(&remains);
    }
  } catch (const std::exception& error) {  // no memory to seal or to watch
    log_error("the channel to worker '{}' breaks: {}", peer_.name, error.what());
    Remains remains;
    std::lock_guard lock(mutex_);
    full_ = true;
    if (watched_) ::shutdown(socket_.fd(), SHUT_RDWR);
    stop(&remains);
  }
}

void TcpChannel::stop(Remains* remains) {
  writing_ = false;
  if (watched_ || !said_all_) return;
  // Dropped, maybe while we wrote: nobody writes any more.
  remains->current = std::exchange(parcel_, {});
  layout_ = Layout();
  outbox_.close("");
  outbox_.next(&remains->queued);
  socket_.close();
}

void TcpChannel::rest(Remains* remains) {
  full_ = true;
  stuck_ = ended_ ? 0 : parcel_.bytes;
  stop(remains);
  if (armed_ || !watched_) return;
  armed_ = true;
  road_->loop.change(socket_.fd(), kReads | EPOLLOUT, this);
}

void TcpChannel::writable() {
  {
    std::lock_guard lock(mutex_);
    if (writing_ || !full_) return;
    full_ = false;
    stuck_ = 0;
    writing_ = true;
  }
  write();
  std::lock_guard lock(mutex_);
  if (full_ || !armed_ || !watched_) return;
  armed_ = false;
  road_->loop.change(socket_.fd(), kReads, this);
}

}  // namespace trireme::channel::tcp
