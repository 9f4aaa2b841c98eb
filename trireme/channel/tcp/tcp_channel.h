// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "trireme/base/process/process_mark.h"
#include "trireme/channel/channel.h"
#include "trireme/channel/tcp/inbox.h"
#include "trireme/channel/tcp/layout.h"
#include "trireme/channel/tcp/outbox.h"
#include "trireme/net/seal.h"
#include "trireme/net/server/event_loop.h"
#include "trireme/net/socket.h"

namespace trireme::channel::tcp {

class TcpChannel;

/// What the channels of a hub have in common with it. Channels may outlive the hub.
struct TcpRoad {
  net::EventLoop loop{"a worker's hub"};
  const ProcessMark made_in;
  std::mutex mutex;
  std::unordered_set<std::shared_ptr<TcpChannel>> channels;  // whose sockets the loop watches
  std::vector<std::shared_ptr<TcpChannel>> to_end;           // closed on this side, not told yet
  std::atomic<bool> any_to_end{false};
  int calls = 0;  // of receivers; of the thread that serves
};

/// One connection after its handshake. Whoever sends writes the socket, unless somebody does so
/// already or it is full; then the thread that serves goes on when there is room. Everything that
/// is received is of that thread.
class TcpChannel final : public Channel,
                         public net::EventHandler,
                         public std::enable_shared_from_this<TcpChannel> {
 public:
  TcpChannel(std::shared_ptr<TcpRoad> road, net::Socket socket, net::Session session, Peer peer);
  ~TcpChannel() override;

  bool send(Message message) override;
  uint64_t unsent() const override;
  std::shared_ptr<void> empty(uint64_t bytes) override { return plain_memory(bytes); }
  void close(const std::string& why) override;
  const Peer& peer() const override { return peer_; }

  // For the hub.
  /// From here on the thread that serves may call the receiver; without one, the channel only says
  /// what it has to. `greeting`: of the end that was called. ResourceError.
  void start(std::shared_ptr<Receiver> receiver, std::string greeting);

  // For the thread that serves.
  void ready(uint32_t events) override;
  /// Tells the receiver that this side has closed it, and gives the other end time to hear why.
  void tell_closed();
  /// Whether the other end acknowledges; ends the channel if it does not.
  void check_link();
  /// Drops it when the time to say why is over. Returns when that will be.
  Deadline linger();
  /// Closes at once; the other end hears why if the socket takes it, and the receiver nothing.
  void drop(const std::string& why);

 private:
  void write();
  /// What is freed when nobody holds mutex_.
  struct Remains {
    Parcel current, queued;
  };
  // Of who writes, under mutex_: it stops; it goes on when the socket has room.
  void stop(Remains* remains);
  void rest(Remains* remains);
  void writable();
  void readable();
  void take_news();
  void on_news(Inbox::News news);
  void acknowledge(uint64_t bytes);
  void throw_away();
  /// The peer is gone, or has closed: nothing goes out any more.
  void lost(const std::string& why);
  /// What came is not what a peer may send: he is told.
  void broke(const std::string& why);
  bool begin_end(const std::string& why, bool tell);
  void let_tell();
  void call_closed();
  void forget();
  std::string whose() const;  // "worker 'server0' at 10.0.0.1:4711"

  const std::shared_ptr<TcpRoad> road_;
  const Peer peer_;
  net::Socket socket_;

  mutable std::mutex mutex_;
  Outbox outbox_;
  bool writing_ = false;   // a thread is in write()
  bool full_ = true;       // nobody writes: the socket is full, or the channel has not started
  bool armed_ = false;     // epoll tells when it has room
  uint64_t stuck_ = 0;     // bytes posted that are laid out and wait for room in the socket
  bool watched_ = false;   // cleared by the thread that serves alone
  bool said_all_ = false;  // nothing is written any more
  std::string why_;        // it ended

  std::atomic<bool> ended_{false};  // set under mutex_
  std::atomic<bool> wrote_{false};  // since check_link() found everything acknowledged
  // Of the thread that writes.
  std::optional<net::Seal> out_;
  Parcel parcel_;
  Layout layout_;
  // Of the thread that serves.
  Inbox inbox_;
  std::shared_ptr<Receiver> receiver_;
  Deadline lingers_ = Deadline::never();
};

}  // namespace trireme::channel::tcp
