// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/local_channel.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/channel/local/letter.h"

// How an end begins and how it is over; sending is in send.cc, receiving in receive.cc.
namespace trireme::channel::local {

LocalChannel::LocalChannel(Joined joined)
    : peer_(std::move(joined.peer)),
      pid_(joined.pid),
      own_bell_(std::move(joined.own_bell)),
      peer_bell_(std::move(joined.peer_bell)),
      out_memory_(std::move(joined.lane_out)),
      socket_(std::move(joined.socket)),
      pidfd_(std::move(joined.pidfd)),
      returns_(std::make_shared<Returns>(
          std::make_shared<::trireme::local::Window>(std::move(joined.lane_in)))),
      out_(lane_out()),
      in_(lane_in()),
      resolve_(
          [this](const LentPlace& place, uint64_t bytes) { return lent_by_peer(place, bytes); }),
      windows_(returns_) {
  memory_ = std::make_shared<LentMemory>(
      joined.most_window_bytes, [socket = socket_.get()](uint32_t window, int fd, uint64_t bytes) {
        Letter letter;
        letter.kind = fd >= 0 ? LetterKind::window : LetterKind::dropped;
        letter.number = window;
        letter.bytes = bytes;
        return send_letter(socket, letter, fd);
      });
}

LocalChannel::~LocalChannel() {
  if (mark_.is_here()) memory_->end();  // it may live on, without this socket
}

std::string LocalChannel::who() const {
  return pid_ > 0 ? fmt::format("worker '{}' (pid {})", peer_.name, pid_)
                  : fmt::format("worker '{}'", peer_.name);
}

/// `why`: what our receiver hears; `told`: what the peer does. The first reason counts.
void LocalChannel::end(const std::string& why, const std::string& told) {
  {
    std::lock_guard lock(why_mutex_);
    if (over_.load(std::memory_order_relaxed)) return;
    why_ = why;
    std::memcpy(lane_out()->why, told.data(), std::min(told.size(), kWhyBytes));
    lane_out()->closed.store(1, std::memory_order_release);
    over_.store(true, std::memory_order_release);
  }
  peer_bell_.ring();
  own_bell_->ring();
}

void LocalChannel::close(const std::string& why) {
  mark_.check("this channel");
  end(why, why);
}

int LocalChannel::finish() {
  std::deque<Outgoing> unsent_short, unsent_long;  // let go without the lock
  std::string why;
  {
    std::lock_guard lock(out_mutex_);
    unsent_short.swap(short_), unsent_long.swap(long_);
    queued_ = 0, unsent_ = 0;
  }
  {
    std::lock_guard lock(why_mutex_);
    why = why_;
  }
  memory_->end();
  socket_.reset(), pidfd_.reset();
  finished_ = true;
  const std::shared_ptr<Receiver> receiver = std::move(receiver_);
  if (!receiver) return 0;
  receiver->closed(why);
  return 1;
}

void LocalChannel::abandon() {
  end("this worker's hub is gone", "its hub is gone");
  receiver_.reset();
  if (!finished_) finish();
}

}  // namespace trireme::channel::local
