// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/rpc/wire/messages.h"

namespace trireme::rpc {

namespace detail {
class WaitScope;
}

/// The call that a handler answers: its first parameter, `rpc::Call&`, where it wants to know. It
/// lives until the handler has returned or, where that returns a Future, until this one is ready.
/// Threads: any.
class TRIREME_API Call {
 public:
  virtual ~Call();
  Call(const Call&) = delete;

  /// The worker that called.
  const std::string& caller() const { return caller_; }
  const std::string& method() const { return chain_.back().method; }
  /// When nobody waits for the answer any more. Calls that the handler makes have it too, or an
  /// earlier one of their own.
  Deadline deadline() const { return deadline_; }
  /// Stop is requested when the caller cancels, when the deadline has passed, when the caller is
  /// gone, and when this worker shuts down. A std::stop_callback runs on the thread that receives
  /// messages, and must not wait.
  std::stop_token stop_token() const { return stop_.get_token(); }
  /// The calls within which this one was made, from the outermost to this one.
  const std::vector<wire::Link>& chain() const { return chain_; }

 protected:
  friend class detail::WaitScope;
  /// Its handler begins to wait for a future with this ticket, and has ended waiting.
  virtual void waits(uint64_t ticket) const;
  virtual void goes_on() const;

  Call(std::string caller, std::vector<wire::Link> chain, Deadline deadline)
      : caller_(std::move(caller)), chain_(std::move(chain)), deadline_(deadline) {}

  std::stop_source stop_;

 private:
  const std::string caller_;
  const std::vector<wire::Link> chain_;
  const Deadline deadline_;
};

namespace detail {

/// The call that this thread works for: within its handler, and in what continues after a Future
/// that was made there. Null: none.
TRIREME_API const std::shared_ptr<const Call>& current_call();

/// While a handler waits in get().
class WaitScope {
 public:
  WaitScope(std::shared_ptr<const Call> call, uint64_t ticket) : call_(std::move(call)) {
    if (call_) call_->waits(ticket);
  }
  ~WaitScope() {
    if (call_) call_->goes_on();
  }
  WaitScope(const WaitScope&) = delete;

 private:
  const std::shared_ptr<const Call> call_;
};

class TRIREME_API CallScope {
 public:
  explicit CallScope(std::shared_ptr<const Call> call);
  ~CallScope();
  CallScope(const CallScope&) = delete;

 private:
  std::shared_ptr<const Call> before_;
};

}  // namespace detail
}  // namespace trireme::rpc
