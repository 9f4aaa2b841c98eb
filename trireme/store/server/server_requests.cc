// SPDX-License-Identifier: Apache-2.0
// What the store's server does with a request; server_loop.cc decides whose turn it is.
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/store/server/answer.h"
#include "trireme/store/server/server_loop.h"

namespace trireme {

using detail::Op;
using detail::Reply;
using detail::Request;
using detail::Status;

void StoreServer::Loop::on_request(Client& client, Request request) {
  switch (request.op) {
    case Op::get:
    case Op::wait:
      client.wait_until = request.timeout_ms > uint64_t{1} << 40
                              ? Deadline::never()
                              : Deadline::after(std::chrono::milliseconds(request.timeout_ms));
      client.waiting = std::move(request);
      client.connection->paused = true;
      return try_answer_wait(client);
    case Op::set_will:
    case Op::clear_will:
      return on_will(client, std::move(request));
    case Op::goodbye:
      drop_will(client);
      return server_.start_closing(*client.connection);  // the client is gone now
    default:
      return reply(client, encode(*answer(*table_, request)));
  }
}

void StoreServer::Loop::on_will(Client& client, Request request) {
  Reply out;
  try {
    // The new one first: a will that finds no room leaves the old one in force.
    std::optional<Client::Will> next;
    if (request.op == Op::set_will) {
      size_t room = table_->keep_room(request.keys[0], request.value);
      next = {std::move(request.keys[0]), std::move(request.value), room};
    }
    drop_will(client);
    client.will = std::move(next);
  } catch (const Error& error) {
    out = detail::reply_to(error);
  }
  reply(client, encode(out));
}

void StoreServer::Loop::drop_will(Client& client) {
  if (client.will) table_->give_back_room(client.will->room);
  client.will.reset();
}

void StoreServer::Loop::execute_will(Client& client) {
  if (!client.will) return;
  auto will = std::move(*client.will);
  client.will.reset();
  log_debug("the store lost {}: setting '{}' as it wished", client.connection->source, will.key);
  try {
    table_->set_in_room(will.key, will.value, will.room);
  } catch (const std::exception& error) {  // out of memory; the others are still served
    log_error("the store could not set '{}' for a client that was lost: {}", will.key,
              error.what());
  }
}

/// Answers if all keys are there, else notes what is missing and when to give up.
void StoreServer::Loop::try_answer_wait(Client& client) {
  auto absent = table_->missing(client.waiting->keys);
  Reply out;
  if (absent.empty() && client.waiting->op == Op::get) {
    auto value = table_->find(client.waiting->keys.front());
    if (value)
      out.value = std::move(*value);
    else
      absent = client.waiting->keys;  // deleted by another thread just now
  }
  if (absent.empty()) {
    forget_wait(client);
    return reply(client, encode(out));
  }
  client.absent = {absent.begin(), absent.end()};
  for (const auto& key : client.absent) waiters_[key].insert(client.connection->id);
  if (client.wait_until.remaining() < next_wait_.remaining()) next_wait_ = client.wait_until;
}

void StoreServer::Loop::give_up_wait(Client& client) {
  Reply out{Status::absent, 0, "", {}};
  for (const auto& key : client.waiting->keys)
    if (client.absent.contains(key)) out.keys.push_back(key);
  forget_wait(client);
  Connection& connection = *client.connection;
  try {
    reply(client, encode(out));
  } catch (const std::exception&) {  // it went away while its time ran out
    return server_.close(connection);
  }
  server_.resume(connection);
}

void StoreServer::Loop::forget_wait(Client& client) {
  for (const auto& key : client.absent) {
    auto at = waiters_.find(key);
    if (at == waiters_.end()) continue;
    at->second.erase(client.connection->id);
    if (at->second.empty()) waiters_.erase(at);
  }
  client.absent.clear();
  client.waiting.reset();
  client.connection->paused = false;
}

/// Looks at every key that got a value, by whomever, and serves those who waited for it.
void StoreServer::Loop::answer_waiters() {
  while (true) {
    std::vector<std::string> changed;
    {
      std::lock_guard lock(mutex_);
      changed.swap(changed_);
    }
    if (changed.empty()) return;
    for (const auto& key : changed) {
      auto at = waiters_.find(key);
      if (at == waiters_.end()) continue;
      auto ids = std::move(at->second);
      waiters_.erase(at);
      for (uint64_t id : ids) {
        Client& client = clients_.at(id);  // whoever closes forgets its waits
        client.absent.erase(key);
        if (!client.absent.empty()) continue;
        Connection& connection = *client.connection;
        try {
          try_answer_wait(client);
        } catch (const std::exception& error) {
          log_debug("the store closed the connection of {}: {}", connection.source, error.what());
          server_.close(connection);
          continue;
        }
        server_.resume(connection);
      }
    }
  }
}

}  // namespace trireme
