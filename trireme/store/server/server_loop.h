// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trireme/net/server/event_loop.h"
#include "trireme/net/server/server.h"
#include "trireme/store/key_table.h"
#include "trireme/store/protocol.h"
#include "trireme/store/server/tcp_server.h"

namespace trireme {

/// The server's thread and everything that only it touches; what other threads ask for stands under
/// mutex_, or is the net::Server's.
class StoreServer::Loop final : net::ServerUser {
 public:
  Loop(Options options, std::vector<net::Listener> listeners);
  ~Loop() override { stop(); }

  void stop();
  void end_with_the_last_client();
  net::Server& server() { return server_; }
  std::shared_ptr<detail::KeyTable> table() const { return table_; }

 private:
  using Connection = net::ServerConnection;

  /// What the store knows of one connection.
  struct Client {
    Connection* connection = nullptr;
    /// A get or wait that is not answered yet.
    std::optional<detail::Request> waiting;
    std::unordered_set<std::string> absent;
    Deadline wait_until = Deadline::never();
    struct Will {
      std::string key, value;
      size_t room = 0;  // kept for it in the table
    };
    std::optional<Will> will;
  };

  void run();
  void proved(Connection& connection) override;
  void came(Connection& connection, net::Frame frame) override;
  void closed(Connection& connection) override;

  void on_request(Client& client, detail::Request request);
  void on_will(Client& client, detail::Request request);
  void drop_will(Client& client);
  void execute_will(Client& client);
  void reply(Client& client, std::string frame) {
    server_.reply(*client.connection, std::move(frame));
  }

  void try_answer_wait(Client& client);
  void give_up_wait(Client& client);
  void forget_wait(Client& client);
  void answer_waiters();
  void check_waits();

  std::shared_ptr<detail::KeyTable> table_;
  net::EventLoop loop_{"the store's server"};
  net::Server server_;
  std::unordered_map<uint64_t, Client> clients_;                           // by connection
  std::unordered_map<std::string, std::unordered_set<uint64_t>> waiters_;  // by key
  Deadline next_wait_ = Deadline::never();  // no wait's time passes before this

  std::mutex mutex_;
  std::vector<std::string> changed_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ends_with_clients_{false};
  std::atomic<std::thread::id> loop_thread_{};
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace trireme
