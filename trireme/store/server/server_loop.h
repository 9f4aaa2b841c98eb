// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trireme/base/fd.h"
#include "trireme/net/listener.h"
#include "trireme/store/key_table.h"
#include "trireme/store/server/connection.h"
#include "trireme/store/server/strangers.h"
#include "trireme/store/server/tcp_server.h"

namespace trireme {

/// The server's thread and everything that only it touches; what other threads ask for stands under
/// mutex_.
class StoreServer::Loop {
 public:
  Loop(Options options, std::vector<net::Listener> listeners);
  ~Loop() { stop(); }

  void stop();
  void stop_listening();
  void end_with_the_last_client();
  std::vector<net::Endpoint> endpoints() const;
  std::shared_ptr<detail::KeyTable> table() const { return table_; }
  size_t clients() const;
  bool wait_until_clients_left(Deadline deadline);
  std::vector<std::string> refusals() const;
  size_t strangers() const;

 private:
  using Connection = detail::Connection;
  using Strangers = detail::Strangers;

  void run();
  void run_once(std::vector<epoll_event>& events);
  void wake();
  int epoll_timeout_ms() const;
  void watch(int fd, uint64_t id, uint32_t events, bool is_new);

  void accept_from(size_t listener);
  void make_room_for_one();
  void set_listening(bool on);
  void close_listeners();

  void serve(Connection& c, uint32_t events);
  void on_input(Connection& c);
  void on_handshake(Connection& c, const net::Frame& frame);
  void on_request(Connection& c, detail::Request request);
  void on_will(Connection& c, detail::Request request);
  void drop_will(Connection& c);
  void execute_will(Connection& c);
  /// Sends, and looks after a while whether it was acknowledged.
  void reply(Connection& c, std::string frame);
  void refuse(Connection& c, net::ServerHandshake::Step step);
  void start_closing(Connection& c);
  void close(uint64_t id);
  void update_interest(Connection& c);
  void note_stranger();
  void note_refusal(const std::string& source, const std::string& text);

  void try_answer_wait(Connection& c);
  void give_up_wait(Connection& c);
  void forget_wait(Connection& c);
  void answer_waiters();
  void check_limits();
  void sooner_limit(Deadline limit);

  const Options options_;
  const net::Credentials unix_credentials_;
  std::vector<net::Listener> listeners_;
  std::shared_ptr<detail::KeyTable> table_;
  UniqueFd epoll_;
  UniqueFd wake_;

  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::string, std::unordered_set<uint64_t>> waiters_;  // by key
  uint64_t next_id_ = 0;
  Strangers strangers_;  // connections that are not open
  bool listening_ = false;
  Deadline listen_again_ = Deadline::never();
  Deadline next_limit_ = Deadline::never();  // no limit of any connection passes before this

  mutable std::mutex mutex_;
  std::condition_variable left_;  // a client left, or the listeners closed
  std::vector<std::string> changed_;
  size_t clients_ = 0;
  size_t strangers_seen_ = 0;
  std::vector<std::pair<std::string, std::string>> refusals_;  // source, text
  std::atomic<bool> stop_{false};
  std::atomic<bool> stop_listening_{false};
  std::atomic<bool> ends_with_clients_{false};
  bool deaf_ = false;  // under mutex_: the listeners are closed, or the thread has ended
  std::atomic<std::thread::id> loop_thread_{};
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace trireme
