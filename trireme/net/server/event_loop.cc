// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/server/event_loop.h"

#include <sys/eventfd.h>

#include "trireme/base/check.h"
#include "trireme/net/socket.h"

namespace trireme::net {

EventLoop::EventLoop(std::string_view whose)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      events_(256) {
  check<ResourceError>(epoll_ && wake_, "cannot make {}: {}{}", whose, errno_text(),
                       descriptor_hint(errno));
  control(EPOLL_CTL_ADD, wake_.get(), EPOLLIN, nullptr);
}

void EventLoop::control(int operation, int fd, uint32_t events, EventHandler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    fail<ResourceError>("cannot watch a socket: {}", errno_text());
}

void EventLoop::watch(int fd, uint32_t events, EventHandler* handler) {
  control(EPOLL_CTL_ADD, fd, events, handler);
}

void EventLoop::change(int fd, uint32_t events, EventHandler* handler) {
  control(EPOLL_CTL_MOD, fd, events, handler);
}

void EventLoop::forget(int fd, EventHandler* handler) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  for (int i = first_; i < last_; ++i)
    if (events_[i].data.ptr == handler) events_[i].data.ptr = nullptr;
}

int EventLoop::turn(int timeout_ms) {
  int called = 0;
  first_ = 0;
  last_ = ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), timeout_ms);
  while (first_ < last_) {
    const epoll_event& event = events_[first_++];
    const uint32_t what = event.events;
    if (auto* handler = static_cast<EventHandler*>(event.data.ptr)) {
      handler->ready(what);
      ++called;
    } else {  // the wake-up, or somebody forgotten: then there is nothing to read
      uint64_t count;
      [[maybe_unused]] ssize_t got = ::read(wake_.get(), &count, sizeof count);
    }
  }
  return called;
}

void EventLoop::wake() {
  uint64_t one = 1;
  // Only a full counter can fail, and then the wake-up is due already.
  [[maybe_unused]] ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

}  // namespace trireme::net
