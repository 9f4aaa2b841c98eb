// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme::net {

/// Whom a loop calls when something happened to a descriptor.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  /// `events`: EPOLLIN and the like. It may forget itself and others, and may die in the call.
  virtual void ready(uint32_t events) = 0;
};

/// epoll(7) with a way to wake it. A handler lives from watch() to forget(). Threads: one at a time
/// is in turn(); that one calls forget(). The rest may be called from any.
class TRIREME_API EventLoop {
 public:
  /// `whose`: for the text of the ResourceError ("the store's server").
  explicit EventLoop(std::string_view whose);
  EventLoop(const EventLoop&) = delete;

  /// ResourceError.
  void watch(int fd, uint32_t events, EventHandler* handler);
  void change(int fd, uint32_t events, EventHandler* handler);
  /// Before the descriptor is closed: a forked child may hold a copy that lives on. What has
  /// happened to it already is not told any more.
  void forget(int fd, EventHandler* handler);

  /// Waits at most so long (0: not at all) for something to happen, and calls who is concerned.
  /// Returns how many handlers it called.
  int turn(int timeout_ms);
  /// Ends the wait of turn(), or of the next one.
  void wake();
  /// Readable when a turn has something to do: another loop may watch it.
  int fd() const { return epoll_.get(); }

 private:
  void control(int operation, int fd, uint32_t events, EventHandler* handler);

  UniqueFd epoll_;
  UniqueFd wake_;
  std::vector<epoll_event> events_;
  int first_ = 0, last_ = 0;  // of events_: who is still to be called in this turn
};

}  // namespace trireme::net
