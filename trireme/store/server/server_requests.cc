// SPDX-License-Identifier: Apache-2.0
// What the store's server does with the bytes of one connection; server_loop.cc decides whose turn
// it is.
#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/link.h"
#include "trireme/store/server/answer.h"
#include "trireme/store/server/server_loop.h"

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
  if (!step.done) strangers_.put(c.id, Strangers::Standing::greeted);
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
    strangers_.remove(c.id);
    c.proved = true;
  }
  reply(c, std::move(step.reply));
  if (!step.done) return;
  c.session = c.handshake->take_session();
  c.handshake.reset();
  if (c.session.in) c.in.expect_seals(std::move(*c.session.in));
}

void StoreServer::Loop::refuse(Connection& c, net::ServerHandshake::Step step) {
  note_refusal(c.source, step.refused->text);
  execute_will(c);
  start_closing(c);
  c.reply(std::move(step.reply));
}

/// What it gets yet goes out; nothing more is taken from it.
void StoreServer::Loop::start_closing(Connection& c) {
  if (c.state == Connection::State::open) {
    std::lock_guard lock(mutex_);
    if (--clients_ == 0) left_.notify_all();
  }
  forget_wait(c);
  c.state = Connection::State::closing;
  strangers_.put(c.id, Strangers::Standing::refused);
  c.limit = Deadline::after(std::min<Duration>(options_.handshake_limit, std::chrono::seconds(1)));
  sooner_limit(c.limit);
}

void StoreServer::Loop::on_request(Connection& c, Request request) {
  switch (request.op) {
    case Op::get:
    case Op::wait:
      c.wait_until = request.timeout_ms > uint64_t{1} << 40
                         ? Deadline::never()
                         : Deadline::after(std::chrono::milliseconds(request.timeout_ms));
      c.waiting = std::move(request);
      return try_answer_wait(c);
    case Op::set_will:
    case Op::clear_will:
      return on_will(c, std::move(request));
    case Op::goodbye:
      drop_will(c);
      return start_closing(c);
    default:
      return reply(c, encode(*answer(*table_, request)));
  }
}

void StoreServer::Loop::on_will(Connection& c, Request request) {
  Reply out;
  try {
    // The new one first: a will that finds no room leaves the old one in force.
    std::optional<Connection::Will> next;
    if (request.op == Op::set_will) {
      size_t room = table_->keep_room(request.keys[0], request.value);
      next = {std::move(request.keys[0]), std::move(request.value), room};
    }
    drop_will(c);
    c.will = std::move(next);
  } catch (const Error& error) {
    out = detail::reply_to(error);
  }
  reply(c, encode(out));
}

void StoreServer::Loop::drop_will(Connection& c) {
  if (c.will) table_->give_back_room(c.will->room);
  c.will.reset();
}

void StoreServer::Loop::execute_will(Connection& c) {
  if (!c.will) return;
  auto will = std::move(*c.will);
  c.will.reset();
  log_debug("the store lost {}: setting '{}' as it wished", c.source, will.key);
  try {
    table_->set_in_room(will.key, will.value, will.room);
  } catch (const std::exception& error) {  // out of memory; the others are still served
    log_error("the store could not set '{}' for a client that was lost: {}", will.key,
              error.what());
  }
}

void StoreServer::Loop::reply(Connection& c, std::string frame) {
  c.reply(std::move(frame));
  if (!c.is_tcp || !c.link_check.is_never()) return;
  c.link_check = Deadline::after(net::kLinkCheckEvery);
  sooner_limit(c.link_check);
}

/// Answers if all keys are there, else notes what is missing and when to give up.
void StoreServer::Loop::try_answer_wait(Connection& c) {
  auto absent = table_->missing(c.waiting->keys);
  Reply out;
  if (absent.empty() && c.waiting->op == Op::get) {
    auto value = table_->find(c.waiting->keys.front());
    if (value)
      out.value = std::move(*value);
    else
      absent = c.waiting->keys;  // deleted by another thread just now
  }
  if (absent.empty()) {
    forget_wait(c);
    return reply(c, encode(out));
  }
  c.absent = {absent.begin(), absent.end()};
  for (const auto& key : c.absent) waiters_[key].insert(c.id);
  sooner_limit(c.wait_until);
}

void StoreServer::Loop::give_up_wait(Connection& c) {
  Reply out{Status::absent, 0, "", {}};
  for (const auto& key : c.waiting->keys)
    if (c.absent.contains(key)) out.keys.push_back(key);
  forget_wait(c);
  const uint64_t id = c.id;
  try {
    reply(c, encode(out));
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
