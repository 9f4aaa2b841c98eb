// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/server/server_loop.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/net/link.h"

namespace trireme {
namespace {

// epoll's tags: listeners count up from 0, then the wake-up, then connections.
constexpr uint64_t kWakeId = 1000;
constexpr uint64_t kFirstConnection = 1001;
constexpr int kAcceptsAtOnce = 16;  // then those who are here already get their turn
constexpr size_t kMostRefusals = 16;

}  // namespace

StoreServer::Loop::Loop(Options options, std::vector<net::Listener> listeners)
    : options_(std::move(options)),
      unix_credentials_{options_.credentials.job_id, std::nullopt},
      listeners_(std::move(listeners)),
      table_(std::make_shared<detail::KeyTable>(options_.max_bytes)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_id_(kFirstConnection) {
  check<ResourceError>(epoll_ && wake_, "cannot make the store's server: {}{}", errno_text(),
                       net::descriptor_hint(errno));
  check<UsageError>(options_.credentials.job_id.size() <= net::kMaxJobId,
                    "a job id of {} bytes; at most {}", options_.credentials.job_id.size(),
                    net::kMaxJobId);
  watch(wake_.get(), kWakeId, EPOLLIN, true);
  set_listening(true);
  table_->on_change([this](const std::string& key) {
    {
      std::lock_guard lock(mutex_);
      changed_.push_back(key);
    }
    // The server's own thread looks at changed_ after each request anyway.
    if (std::this_thread::get_id() != loop_thread_.load()) wake();
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
  wake();
  thread_.join();
  table_->on_change({});
}

void StoreServer::Loop::stop_listening() {
  stop_listening_ = true;
  wake();
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] { return deaf_; });  // the loop never waits longer than one client's turn
}

void StoreServer::Loop::end_with_the_last_client() {
  ends_with_clients_ = true;
  stop_listening();
}

void StoreServer::Loop::close_listeners() {
  set_listening(false);
  listen_again_ = Deadline::never();
  for (auto& listener : listeners_) listener.close();
  {
    std::lock_guard lock(mutex_);
    deaf_ = true;
  }
  left_.notify_all();
}

void StoreServer::Loop::wake() {
  uint64_t one = 1;
  // Only a full counter can fail, and then the wake-up is due already.
  [[maybe_unused]] ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

std::vector<net::Endpoint> StoreServer::Loop::endpoints() const {
  std::vector<net::Endpoint> out;
  for (const auto& listener : listeners_) out.push_back(listener.endpoint());
  return out;
}

size_t StoreServer::Loop::clients() const {
  std::lock_guard lock(mutex_);
  return clients_;
}

bool StoreServer::Loop::wait_until_clients_left(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (clients_ > 0 && !deadline.expired())
    left_.wait_for(lock, std::chrono::milliseconds(deadline.poll_ms(60'000)));
  return clients_ == 0;
}

size_t StoreServer::Loop::strangers() const {
  std::lock_guard lock(mutex_);
  return strangers_seen_;
}

std::vector<std::string> StoreServer::Loop::refusals() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [source, text] : refusals_) out.push_back(source + ": " + text);
  return out;
}

void StoreServer::Loop::run() {
  loop_thread_ = std::this_thread::get_id();
  std::vector<epoll_event> events(256);
  try {
    while (!stop_ && !(ends_with_clients_ && clients() == 0)) run_once(events);
  } catch (const std::exception& error) {  // clients see the connection close, and say so
    log_error("the store at {} stops: {}", listeners_.front().endpoint().text(), error.what());
  }
  connections_.clear();
  waiters_.clear();
  {
    std::lock_guard lock(mutex_);
    clients_ = 0;
  }
  close_listeners();
  left_.notify_all();
}

void StoreServer::Loop::run_once(std::vector<epoll_event>& events) {
  int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                       epoll_timeout_ms());
  for (int i = 0; i < n; ++i) {
    uint64_t id = events[i].data.u64;
    if (id == kWakeId) {
      uint64_t count;
      [[maybe_unused]] ssize_t got = ::read(wake_.get(), &count, sizeof count);
    } else if (id < kWakeId) {
      accept_from(id);
    } else if (auto at = connections_.find(id); at != connections_.end()) {
      serve(*at->second, events[i].events);
    }
  }
  answer_waiters();
  check_limits();
  answer_waiters();  // of what the wills of those who were too late have set
}

int StoreServer::Loop::epoll_timeout_ms() const {
  return std::min(next_limit_.poll_ms(60'000), listen_again_.poll_ms(60'000));
}

void StoreServer::Loop::watch(int fd, uint64_t id, uint32_t events, bool is_new) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  int code = ::epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
  check<ResourceError>(code == 0, "cannot watch a socket: {}", errno_text());
}

void StoreServer::Loop::set_listening(bool on) {
  if (on == listening_ || (on && stop_listening_)) return;
  listening_ = on;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (on) {
      watch(listeners_[i].fd(), i, EPOLLIN, true);
    } else {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listeners_[i].fd(), nullptr);
    }
  }
  listen_again_ = on ? Deadline::never() : Deadline::after(std::chrono::milliseconds(100));
}

void StoreServer::Loop::make_room_for_one() {
  if (strangers_.size() < options_.max_pending) return;
  auto id = *strangers_.first_to_go();
  auto& c = *connections_.at(id);
  if (c.state == Connection::State::handshake)
    note_refusal(c.source,
                 fmt::format("too many unauthenticated connections at once (at most {} are kept)",
                             options_.max_pending));
  close(id);
}

void StoreServer::Loop::accept_from(size_t which) {
  if (stop_listening_) return;
  auto& listener = listeners_[which];
  bool is_unix = listener.endpoint().is_unix();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    try {
      auto socket = listener.accept_now();
      if (!socket) return;
      auto source = is_unix ? socket->peer() : socket->peer().substr(0, socket->peer().rfind(':'));
      if (is_unix) {
        auto who = net::peer_credentials(*socket);
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
      auto own = std::make_unique<Connection>(
          next_id_++, std::move(*socket), is_unix ? unix_credentials_ : options_.credentials,
          std::move(source), is_unix ? uint16_t{0} : listener.endpoint().address.port, limit);
      auto& c = *own;
      c.interest = EPOLLIN | EPOLLRDHUP;
      watch(fd, c.id, c.interest, true);
      strangers_.put(c.id, Strangers::Standing::silent);
      sooner_limit(limit);
      connections_.emplace(c.id, std::move(own));
      serve(c, EPOLLIN);                     // most ranks' first words are here already
    } catch (const std::exception& error) {  // out of descriptors: those who are here go on
      note_refusal("newcomers", error.what());
      auto id = strangers_.first_to_go();
      if (!id) return set_listening(false);
      close(*id);
    }
  }
}

void StoreServer::Loop::note_stranger() {
  size_t seen;
  {
    std::lock_guard lock(mutex_);
    seen = ++strangers_seen_;
  }
  if (seen >= 100 && std::log10(seen) == std::floor(std::log10(seen)))
    log_warn("{} connections to the store at {} so far did not authenticate", seen,
             listeners_.front().endpoint().text());
}

void StoreServer::Loop::note_refusal(const std::string& source, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& [known, _] : refusals_)
      if (known == source) return;
    if (refusals_.size() >= kMostRefusals) return;
    refusals_.emplace_back(source, text);
  }
  log_warn("the store at {} refused {}: {}", listeners_.front().endpoint().text(), source, text);
}

void StoreServer::Loop::close(uint64_t id) {
  auto at = connections_.find(id);
  if (at == connections_.end()) return;
  Connection& c = *at->second;
  forget_wait(c);
  bool was_open = c.state == Connection::State::open, proved = c.proved;
  execute_will(c);
  strangers_.remove(id);
  connections_.erase(at);
  if (!proved) note_stranger();
  if (!was_open) return;
  std::lock_guard lock(mutex_);
  if (--clients_ == 0) left_.notify_all();
}

void StoreServer::Loop::update_interest(Connection& c) {
  uint32_t interest = EPOLLRDHUP;
  if (c.state == Connection::State::closing) interest = 0;  // its end shows as a read of nothing
  if (c.wants_input()) interest |= EPOLLIN;
  if (c.has_output()) interest |= EPOLLOUT;
  if (interest == c.interest) return;
  c.interest = interest;
  watch(c.socket.fd(), c.id, interest, false);
}

void StoreServer::Loop::sooner_limit(Deadline limit) {
  if (limit.remaining() < next_limit_.remaining()) next_limit_ = limit;
}

void StoreServer::Loop::check_limits() {
  if (stop_listening_ && listeners_.front().fd() >= 0) close_listeners();
  if (listen_again_.expired()) set_listening(true);
  if (!next_limit_.expired()) return;
  std::vector<uint64_t> late;
  std::vector<uint64_t> cut;
  std::vector<Connection*> waits_over;
  next_limit_ = Deadline::never();
  for (auto& [id, c] : connections_) {
    if (c->state != Connection::State::open) {
      if (c->limit.expired())
        late.push_back(id);
      else
        sooner_limit(c->limit);
    } else if (c->waiting) {
      if (c->wait_until.expired())
        waits_over.push_back(c.get());
      else
        sooner_limit(c->wait_until);
    }
    if (c->link_check.expired()) {
      auto link = net::link_of(c->socket.fd());
      if (link == net::Link::cut) cut.push_back(id);
      c->link_check =
          link == net::Link::quiet ? Deadline::never() : Deadline::after(net::kLinkCheckEvery);
    }
    sooner_limit(c->link_check);
  }
  for (auto* c : waits_over) give_up_wait(*c);  // may close it
  for (auto id : cut) {
    auto at = connections_.find(id);
    if (at == connections_.end()) continue;
    log_debug("the store lost {}: its host acknowledges nothing any more", at->second->source);
    close(id);
  }
  for (auto id : late) {
    auto at = connections_.find(id);
    if (at == connections_.end()) continue;
    auto& c = *at->second;
    if (c.state == Connection::State::handshake)
      note_refusal(c.source, "it did not authenticate in time");
    close(id);
  }
}

}  // namespace trireme
