// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/link.h"
#include "trireme/net/server/server.h"

namespace trireme::net {

void Server::serve(ServerConnection& c, uint32_t events) {
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
  } catch (const std::exception& error) {
    log_debug("the {} closed the connection of {}: {}", options_.noun, c.source, error.what());
    return close(id);
  }
  resume(c);
}

void Server::resume(ServerConnection& c) {
  const uint64_t id = c.id;
  try {
    on_input(c);
    if (connections_.contains(id)) update_interest(c);
  } catch (const std::exception& error) {
    log_debug("the {} closed the connection of {}: {}", options_.noun, c.source, error.what());
    close(id);
  }
}

/// Takes whole frames as long as the connection may speak, and is here.
void Server::on_input(ServerConnection& c) {
  const uint64_t id = c.id;
  while (c.state != ServerConnection::State::closing && c.wants_input()) {
    bool stranger = c.state == ServerConnection::State::handshake;
    try {
      auto frame = c.in.next(stranger ? kMaxPayloadBefore : kMaxPayloadAfter);
      if (!frame) return;
      if (stranger) {
        on_handshake(c, *frame);
      } else {
        user_.came(c, std::move(*frame));
      }
    } catch (const Corrupt& error) {
      refuse(c, ServerHandshake::refuse(Refusal::not_understood, error.what()));
    } catch (const Mismatch& error) {
      refuse(c, ServerHandshake::refuse(Refusal::not_understood, error.what()));
    }
    if (!connections_.contains(id)) return;  // taken
  }
}

void Server::on_handshake(ServerConnection& c, const Frame& frame) {
  auto step = c.handshake->on_frame(frame);
  if (step.refused) return refuse(c, std::move(step));
  if (!step.done) strangers_.put(c.id, Strangers::Standing::greeted);
  if (step.done) {
    {
      std::lock_guard lock(mutex_);
      if (clients_ < options_.max_clients) {
        ++clients_;
        c.state = ServerConnection::State::open;
      }
    }
    if (c.state != ServerConnection::State::open)
      return refuse(
          c, ServerHandshake::refuse(
                 Refusal::busy, fmt::format("{} clients are connected, the most this {} serves",
                                            options_.max_clients, options_.noun)));
    strangers_.remove(c.id);
    c.proved = true;
    c.limit = Deadline::never();
  }
  reply(c, std::move(step.reply));
  if (!step.done) return;
  c.session = c.handshake->take_session();
  c.handshake.reset();
  if (c.session.in) c.in.expect_seals(std::move(*c.session.in));
  user_.proved(c);
}

void Server::refuse(ServerConnection& c, ServerHandshake::Step step) {
  note_refusal(c.source, step.refused->text);
  start_closing(c);
  c.reply(std::move(step.reply));
}

void Server::start_closing(ServerConnection& c) {
  if (c.state == ServerConnection::State::open) {
    c.state = ServerConnection::State::closing;
    user_.closed(c);
    one_client_less();
  }
  c.state = ServerConnection::State::closing;
  strangers_.put(c.id, Strangers::Standing::refused);
  set_limit(c,
            Deadline::after(std::min<Duration>(options_.handshake_limit, std::chrono::seconds(1))));
}

void Server::reply(ServerConnection& c, std::string frame) {
  c.reply(std::move(frame));
  if (!c.is_tcp || !c.link_check.is_never()) return;
  c.link_check = Deadline::after(kLinkCheckEvery);
  sooner_limit(c.link_check);
}

void Server::update_interest(ServerConnection& c) {
  uint32_t interest = EPOLLRDHUP;
  if (c.state == ServerConnection::State::closing)
    interest = 0;  // its end shows as a read of nothing
  if (c.wants_input()) interest |= EPOLLIN;
  if (c.has_output()) interest |= EPOLLOUT;
  if (interest == c.interest) return;
  c.interest = interest;
  loop_.change(c.socket.fd(), interest, &c);
}

void Server::one_client_less() {
  std::lock_guard lock(mutex_);
  if (--clients_ == 0) left_.notify_all();
}

void Server::close(uint64_t id) {
  auto at = connections_.find(id);
  if (at == connections_.end()) return;
  ServerConnection& c = *at->second;
  const bool was_open = c.state == ServerConnection::State::open, proved = c.proved;
  if (was_open) {
    c.state = ServerConnection::State::closing;
    user_.closed(c);
  }
  strangers_.remove(id);
  loop_.forget(c.socket.fd(), &c);
  connections_.erase(at);
  if (!proved) note_stranger();
  if (was_open) one_client_less();
}

Server::Taken Server::take(ServerConnection& c) {
  auto rest = c.in.release();
  c.session.in = std::move(rest.seal);
  Taken out{std::move(c.socket), std::move(c.session), std::move(rest.bytes)};
  loop_.forget(out.socket.fd(), &c);
  connections_.erase(c.id);
  one_client_less();
  return out;
}

}  // namespace trireme::net
