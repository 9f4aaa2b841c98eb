// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/server/server_loop.h"

#include <algorithm>
#include <system_error>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"

namespace trireme {

StoreServer::Loop::Loop(Options options, std::vector<net::Listener> listeners)
    : table_(std::make_shared<detail::KeyTable>(options.max_bytes)),
      server_(loop_,
              {std::move(options.credentials), "store", options.max_clients, options.max_pending,
               options.handshake_limit},
              std::move(listeners), *this) {
  table_->on_change([this](const std::string& key) {
    {
      std::lock_guard lock(mutex_);
      changed_.push_back(key);
    }
    // The server's own thread looks at changed_ after each request anyway.
    if (std::this_thread::get_id() != loop_thread_.load()) loop_.wake();
  });
  SignalsBlocked for_the_new_thread;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    fail<ResourceError>("cannot start the store's thread: {}; raise the limit (ulimit -u)",
                        error.what());
  }
}

void StoreServer::Loop::stop() {
  std::lock_guard lock(join_mutex_);
  if (!thread_.joinable()) return;
  stop_ = true;
  loop_.wake();
  thread_.join();
  table_->on_change({});
}

void StoreServer::Loop::end_with_the_last_client() {
  ends_with_clients_ = true;
  server_.stop_listening();
}

void StoreServer::Loop::run() {
  loop_thread_ = std::this_thread::get_id();
  try {
    while (!stop_ && !(ends_with_clients_ && server_.clients() == 0)) {
      loop_.turn(std::min(server_.timeout_ms(), next_wait_.poll_ms(60'000)));
      answer_waiters();
      check_waits();
      server_.check_limits();
      answer_waiters();  // of what the wills of those who were too late have set
    }
  } catch (const std::exception& error) {  // clients see the connection close, and say so
    log_error("the store at {} stops: {}", server_.endpoints().front().text(), error.what());
  }
  clients_.clear();
  waiters_.clear();
  server_.end();
}

void StoreServer::Loop::proved(Connection& connection) {
  clients_[connection.id].connection = &connection;
}

void StoreServer::Loop::came(Connection& connection, net::Frame frame) {
  on_request(clients_.at(connection.id), detail::decode_request(frame));
}

void StoreServer::Loop::closed(Connection& connection) {
  auto at = clients_.find(connection.id);
  forget_wait(at->second);
  execute_will(at->second);
  clients_.erase(at);
}

void StoreServer::Loop::check_waits() {
  if (!next_wait_.expired()) return;
  std::vector<uint64_t> over;
  next_wait_ = Deadline::never();
  for (auto& [id, client] : clients_) {
    if (!client.waiting) continue;
    if (client.wait_until.expired())
      over.push_back(id);
    else if (client.wait_until.remaining() < next_wait_.remaining())
      next_wait_ = client.wait_until;
  }
  for (auto id : over)
    if (auto at = clients_.find(id); at != clients_.end() && at->second.waiting)
      give_up_wait(at->second);  // may close it
}

}  // namespace trireme
