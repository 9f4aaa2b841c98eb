// SPDX-License-Identifier: Apache-2.0
// What the store's server does with the bytes of one connection; server_loop.cc decides whose turn
// it is.
#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/store/server_loop.h"

namespace trireme {

using detail::Op;
using detail::Reply;
using detail::Request;
using detail::Status;

void StoreServer::Loop::serve(Connection& c, uint32_t events) {
  const uint64_t id = c.id;
  try {
    bool alive = true;
    if (events & EPOLLOUT) c.flush();
    if (c.wants_input() && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
      alive = c.read();
    } else if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
      alive = false;  // it left in the middle of a wait, or without taking its reply
    }
    if (!alive) return close(id);
    on_input(c);
    update_interest(c);
  } catch (const std::exception& error) {
    log_debug("the store closed the connection of {}: {}", c.source, error.what());
    close(id);
  }
}

/// Takes whole frames as long as the connection may speak.
void StoreServer::Loop::on_input(Connection& c) {
  while (c.state != Connection::State::closing && c.wants_input()) {
    bool stranger = c.state == Connection::State::handshake;
    try {
      auto frame = c.in.next(stranger ? net::kMaxPayloadBefore : net::kMaxPayloadAfter);
      if (!frame) return;
      if (stranger)
        on_handshake(c, *frame);
      else
        on_request(c, detail::decode_request(*frame));
    } catch (const Corrupt& error) {
      refuse(c, net::ServerHandshake::refuse(net::Refusal::not_understood, error.what()));
    } catch (const Mismatch& error) {
      refuse(c, net::ServerHandshake::refuse(net::Refusal::not_understood, error.what()));
    }
  }
}

void StoreServer::Loop::on_handshake(Connection& c, const net::Frame& frame) {
  auto step = c.handshake->on_frame(frame);
  if (step.refused) return refuse(c, std::move(step));
  if (step.done) {
    {
      std::lock_guard lock(mutex_);
      if (clients_ < options_.max_clients) {
        ++clients_;
        c.state = Connection::State::open;
      }
    }
    if (c.state != Connection::State::open)
      return refuse(c, net::ServerHandshake::refuse(
                           net::Refusal::busy,
                           fmt::format("{} clients are connected, the most this store serves",
                                       options_.max_clients)));
    --pending_;
    c.handshake.reset();
  }
  c.reply(std::move(step.reply));
}

void StoreServer::Loop::refuse(Connection& c, net::ServerHandshake::Step step) {
  note_refusal(c.source, step.refused->text);
  if (c.state == Connection::State::open) {
    ++pending_;
    std::lock_guard lock(mutex_);
    if (--clients_ == 0) left_.notify_all();
  }
  forget_wait(c);
  c.state = Connection::State::closing;
  c.limit = Deadline::after(std::min<Duration>(options_.handshake_limit, std::chrono::seconds(1)));
  if (c.limit.remaining() < next_limit_.remaining()) next_limit_ = c.limit;
  c.reply(std::move(step.reply));
}

void StoreServer::Loop::on_request(Connection& c, Request request) {
  Reply reply;
  try {
    const std::string key = request.keys.empty() ? std::string() : std::move(request.keys.front());
    switch (request.op) {
      case Op::set:
        table_->set(key, request.value);
        break;
      case Op::try_get:
        if (auto value = table_->find(key))
          reply.value = std::move(*value);
        else
          reply.status = Status::absent;
        break;
      case Op::add:
        reply.number = table_->add(key, request.delta);
        break;
      case Op::compare_set:
        reply.value = table_->compare_set(key, request.expected, request.value);
        break;
      case Op::missing:
        if (!request.keys.empty()) request.keys.front() = key;
        reply.keys = table_->missing(request.keys);
        break;
      case Op::erase:
        reply.number = table_->erase(key);
        break;
      case Op::count:
        reply.number = table_->count(key);
        break;
      case Op::get:
      case Op::wait:
        if (!request.keys.empty()) request.keys.front() = key;
        c.wait_until = request.timeout_ms > uint64_t{1} << 40
                           ? Deadline::never()
                           : Deadline::after(std::chrono::milliseconds(request.timeout_ms));
        c.waiting = std::move(request);
        return try_answer_wait(c);
    }
  } catch (const UsageError& error) {
    reply = {Status::usage_error, 0, error.what(), {}};
  } catch (const ResourceError& error) {
    reply = {Status::resource_error, 0, error.what(), {}};
  }
  c.reply(encode(reply));
}

/// Answers if all keys are there, else notes what is missing and when to give up.
void StoreServer::Loop::try_answer_wait(Connection& c) {
  auto absent = table_->missing(c.waiting->keys);
  Reply reply;
  if (absent.empty() && c.waiting->op == Op::get) {
    auto value = table_->find(c.waiting->keys.front());
    if (value)
      reply.value = std::move(*value);
    else
      absent = c.waiting->keys;  // deleted by another thread just now
  }
  if (absent.empty()) {
    forget_wait(c);
    return c.reply(encode(reply));
  }
  c.absent = {absent.begin(), absent.end()};
  for (const auto& key : c.absent) waiters_[key].insert(c.id);
  if (c.wait_until.remaining() < next_limit_.remaining()) next_limit_ = c.wait_until;
}

void StoreServer::Loop::give_up_wait(Connection& c) {
  Reply reply{Status::absent, 0, "", {}};
  for (const auto& key : c.waiting->keys)
    if (c.absent.contains(key)) reply.keys.push_back(key);
  forget_wait(c);
  const uint64_t id = c.id;
  try {
    c.reply(encode(reply));
    on_input(c);
    update_interest(c);
  } catch (const std::exception&) {  // it went away while its time ran out
    close(id);
  }
}

void StoreServer::Loop::forget_wait(Connection& c) {
  for (const auto& key : c.absent) {
    auto at = waiters_.find(key);
    if (at == waiters_.end()) continue;
    at->second.erase(c.id);
    if (at->second.empty()) waiters_.erase(at);
  }
  c.absent.clear();
  c.waiting.reset();
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
        Connection& c = *connections_.at(id);  // whoever closes forgets its waits
        c.absent.erase(key);
        if (!c.absent.empty()) continue;
        try {
          try_answer_wait(c);
          on_input(c);
          update_interest(c);
        } catch (const std::exception& error) {
          log_debug("the store closed the connection of {}: {}", c.source, error.what());
          close(id);
        }
      }
    }
  }
}

}  // namespace trireme
