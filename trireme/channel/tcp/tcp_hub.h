// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/channel/tcp/hub.h"
#include "trireme/channel/tcp/tcp_channel.h"
#include "trireme/channel/tcp/wire.h"
#include "trireme/net/server/server.h"

namespace trireme::channel::tcp {

/// A net::Server at the door, whose connections become channels once they have said who they are.
/// The door has a loop of its own, so that a thread that waits in open() can let others in without
/// a receiver's being called.
class TcpHub final : public Hub, private net::ServerUser, private net::EventHandler {
 public:
  explicit TcpHub(TcpOptions options);
  ~TcpHub() override;

  std::string address() const override { return address_; }
  std::shared_ptr<Channel> open(const std::string& address, const Peer& expected,
                                std::shared_ptr<Receiver> receiver, Deadline deadline) override;
  int serve(Deadline deadline) override;
  void interrupt() override;

 private:
  // Of who holds door_mutex_.
  void proved(net::ServerConnection& connection) override;
  void came(net::ServerConnection& connection, net::Frame frame) override;
  void closed(net::ServerConnection&) override {}
  Greeting greeting_for(const Greeting& theirs) const;
  void adopt(net::Server::Taken taken, const Peer& peer);

  /// One attempt to open a channel: the connection, or why another may do better.
  struct Knock;
  Knock knock(const net::Endpoint& at, const std::string& who, Deadline deadline);
  net::Frame next_frame(net::Socket& socket, std::optional<net::Seal>& seal, Deadline deadline);
  /// Until the socket is readable, or for a while.
  void wait_at(const net::Socket& socket, Deadline deadline);

  void ready(uint32_t) override { tend_door(); }  // the door's loop
  void tend_door();
  int serve_alone(Deadline deadline, uint64_t interrupts);
  void tend();
  void tell_ended();
  void check_caller(const char* what) const;
  bool somebody_serves();
  size_t channels() const;
  std::vector<std::shared_ptr<TcpChannel>> all_channels() const;

  const TcpOptions options_;
  const std::shared_ptr<TcpRoad> road_;
  std::mutex door_mutex_;
  net::EventLoop door_{"a worker's hub"};
  std::unique_ptr<net::Server> server_;
  std::string address_;
  Deadline next_look_ = Deadline::never();  // at links, limits, and those who linger

  std::mutex turn_mutex_;
  std::condition_variable turn_;
  bool serving_ = false;
  std::atomic<uint64_t> interrupts_{0};  // changed under turn_mutex_
  uint64_t heard_ = 0;                   // interrupts that made somebody return
  // Who may be in a call of a receiver or of `accept`.
  std::atomic<std::thread::id> serves_{}, at_door_{};
};

}  // namespace trireme::channel::tcp
