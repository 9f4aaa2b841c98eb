// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/server/server.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/link.h"

namespace trireme::net {
namespace {

constexpr int kAcceptsAtOnce = 16;  // then those who are here already get their turn
constexpr size_t kMostRefusals = 16;

}  // namespace

struct Server::Door final : EventHandler {
  Door(Server& server, Listener& listener) : server(server), listener(listener) {}
  void ready(uint32_t) override { server.accept_from(listener); }
  Server& server;
  Listener& listener;
};

Server::Server(EventLoop& loop, Options options, std::vector<Listener> listeners, ServerUser& user)
    : loop_(loop),
      options_(std::move(options)),
      unix_credentials_{options_.credentials.job_id, std::nullopt},
      user_(user),
      listeners_(std::move(listeners)) {
  check<UsageError>(options_.credentials.job_id.size() <= kMaxJobId,
                    "a job id of {} bytes; at most {}", options_.credentials.job_id.size(),
                    kMaxJobId);
  for (auto& listener : listeners_) doors_.push_back(std::make_unique<Door>(*this, listener));
  set_listening(true);
}

Server::~Server() = default;

std::string Server::name() const {
  return fmt::format("the {} at {}", options_.noun, listeners_.front().endpoint().text());
}

std::vector<Endpoint> Server::endpoints() const {
  std::vector<Endpoint> out;
  for (const auto& listener : listeners_) out.push_back(listener.endpoint());
  return out;
}

size_t Server::clients() const {
  std::lock_guard lock(mutex_);
  return clients_;
}

bool Server::wait_until_clients_left(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (clients_ > 0 && !deadline.expired())
    left_.wait_for(lock, std::chrono::milliseconds(deadline.poll_ms(60'000)));
  return clients_ == 0;
}

size_t Server::strangers() const {
  std::lock_guard lock(mutex_);
  return strangers_seen_;
}

std::vector<std::string> Server::refusals() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [source, text] : refusals_) out.push_back(source + ": " + text);
  return out;
}

void Server::stop_listening() {
  stop_listening_ = true;
  loop_.wake();
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] { return deaf_; });  // the loop never waits longer than one client's turn
}

void Server::end() {
  for (auto& [id, c] : connections_) loop_.forget(c->socket.fd(), c.get());
  connections_.clear();
  {
    std::lock_guard lock(mutex_);
    clients_ = 0;
  }
  close_listeners();
  left_.notify_all();
}

void Server::close_listeners() {
  set_listening(false);
  listen_again_ = Deadline::never();
  for (auto& listener : listeners_) listener.close();
  {
    std::lock_guard lock(mutex_);
    deaf_ = true;
  }
  left_.notify_all();
}

void Server::set_listening(bool on) {
  if (on == listening_ || (on && stop_listening_)) return;
  listening_ = on;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (on) {
      loop_.watch(listeners_[i].fd(), EPOLLIN, doors_[i].get());
    } else {
      loop_.forget(listeners_[i].fd(), doors_[i].get());
    }
  }
  listen_again_ = on ? Deadline::never() : Deadline::after(std::chrono::milliseconds(100));
}

void Server::make_room_for_one() {
  if (strangers_.size() < options_.max_pending) return;
  auto id = *strangers_.first_to_go();
  auto& c = *connections_.at(id);
  if (c.state == ServerConnection::State::handshake)
    note_refusal(c.source,
                 fmt::format("too many unauthenticated connections at once (at most {} are kept)",
                             options_.max_pending));
  close(id);
}

void Server::accept_from(Listener& listener) {
  if (stop_listening_) return;
  const bool is_unix = listener.endpoint().is_unix();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    try {
      auto socket = listener.accept_now();
      if (!socket) return;
      auto source = is_unix ? socket->peer() : socket->peer().substr(0, socket->peer().rfind(':'));
      if (is_unix) {
        auto who = peer_credentials(*socket);
        if (who.uid != ::geteuid()) {
          note_stranger();
          note_refusal(source, fmt::format("process {} of user {}", who.pid, who.uid));
          continue;
        }
        source = fmt::format("process {}", who.pid);
      }
      make_room_for_one();
      int fd = socket->fd();
      auto limit = Deadline::after(options_.handshake_limit);
      auto own = std::make_unique<ServerConnection>(
          *this, next_id_++, std::move(*socket), is_unix ? unix_credentials_ : options_.credentials,
          std::move(source), is_unix ? uint16_t{0} : listener.endpoint().address.port, limit);
      auto& c = *own;
      c.interest = EPOLLIN | EPOLLRDHUP;
      loop_.watch(fd, c.interest, &c);
      strangers_.put(c.id, Strangers::Standing::silent);
      sooner_limit(limit);
      connections_.emplace(c.id, std::move(own));
      serve(c, EPOLLIN);                     // most peers' first words are here already
    } catch (const std::exception& error) {  // out of descriptors: those who are here go on
      note_refusal("newcomers", error.what());
      auto id = strangers_.first_to_go();
      if (!id) return set_listening(false);
      close(*id);
    }
  }
}

void Server::note_stranger() {
  size_t seen;
  {
    std::lock_guard lock(mutex_);
    seen = ++strangers_seen_;
  }
  if (seen >= 100 && std::log10(seen) == std::floor(std::log10(seen)))
    log_warn("{} connections to {} so far did not authenticate", seen, name());
}

void Server::note_refusal(const std::string& source, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& [known, _] : refusals_)
      if (known == source) return;
    if (refusals_.size() >= kMostRefusals) return;
    refusals_.emplace_back(source, text);
  }
  log_warn("{} refused {}: {}", name(), source, text);
}

void Server::sooner_limit(Deadline limit) {
  if (limit.remaining() < next_limit_.remaining()) next_limit_ = limit;
}

void Server::set_limit(ServerConnection& c, Deadline limit) {
  c.limit = limit;
  sooner_limit(limit);
}

int Server::timeout_ms() const {
  return std::min(next_limit_.poll_ms(60'000), listen_again_.poll_ms(60'000));
}

void Server::check_limits() {
  if (stop_listening_ && listeners_.front().fd() >= 0) close_listeners();
  if (listen_again_.expired()) set_listening(true);
  if (!next_limit_.expired()) return;
  std::vector<uint64_t> late, cut;
  next_limit_ = Deadline::never();
  for (auto& [id, c] : connections_) {
    if (c->limit.expired())
      late.push_back(id);
    else
      sooner_limit(c->limit);
    if (c->link_check.expired()) {
      auto link = link_of(c->socket.fd());
      if (link == Link::cut) cut.push_back(id);
      c->link_check = link == Link::quiet ? Deadline::never() : Deadline::after(kLinkCheckEvery);
    }
    sooner_limit(c->link_check);
  }
  for (auto id : cut) {
    log_debug("the {} lost {}: its host acknowledges nothing any more", options_.noun,
              connections_.at(id)->source);
    close(id);
  }
  for (auto id : late) {
    auto at = connections_.find(id);
    if (at == connections_.end()) continue;
    auto& c = *at->second;
    if (c.state == ServerConnection::State::handshake)
      note_refusal(c.source, "it did not authenticate in time");
    if (c.state == ServerConnection::State::open)
      note_refusal(c.source, "it did not say in time what it wants");
    close(id);
  }
}

}  // namespace trireme::net
