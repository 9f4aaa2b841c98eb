// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "trireme/base/export.h"

// What futures of all types have in common: becoming ready once, by whoever is first, with a value
// or an error; one thread that waits or one thing that continues.
namespace trireme::rpc::detail {

/// A thread that waits. wake() is called once, and may be the last that happens to it.
class Waiter {
 public:
  virtual void wake() = 0;

 protected:
  ~Waiter() = default;
};

class FutureCore;

/// Who runs what continues after a future, and lets a thread wait for one: a worker's crew.
class TRIREME_API Executor {
 public:
  virtual ~Executor();
  virtual void post(std::function<void()> task) = 0;
  /// Returns when it is done. ResourceError: a handler may not wait here (agent/crew.h).
  virtual void wait(FutureCore& future) = 0;
};

/// Of the worker whose handlers this thread runs; null: none.
TRIREME_API Executor*& own_executor();

/// Whose calls can be given up.
class Canceller {
 public:
  virtual void cancel(uint64_t id) = 0;

 protected:
  ~Canceller() = default;
};

class TRIREME_API FutureCore {
 public:
  /// Without an executor, what continues runs on the thread that makes it ready.
  explicit FutureCore(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}
  virtual ~FutureCore();
  FutureCore(const FutureCore&) = delete;

  bool done() const { return state_.load(std::memory_order_acquire) == State::done; }
  /// False: it is done already.
  bool fail(std::exception_ptr error);
  /// Once done: null where there is a value.
  bool failed() const { return error_ != nullptr; }
  /// Once done: for the one that throws it or passes it on, and is then its only owner.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

  void wait();
  /// Runs once it is done, with the current call and context of this thread. At most one.
  void when_done(std::function<void()> task);
  /// What cancel() does first, while it is not done.
  void on_cancel(std::function<void()> task);
  /// The same without an allocation: call `id` of `canceller` is given up.
  void cancels(std::weak_ptr<Canceller> canceller, uint64_t id);
  /// Makes it fail with Aborted, unless it is done.
  void cancel();

  /// The waiter is woken once it is done. False: it is.
  bool enlist(Waiter* waiter);

  const std::shared_ptr<Executor>& executor() const { return executor_; }
  /// Which of the worker's roads its answer comes by, so that who waits serves that one; -1: any.
  int road() const { return road_; }
  /// Before others see it.
  void comes_by(int road) { road_ = road; }
  /// Of the call whose answer it waits for, where that has one (rpc/actor); 0: none, or unknown.
  uint64_t ticket() const { return ticket_; }
  /// Before others see it.
  void stems_from(uint64_t ticket) { ticket_ = ticket; }

 protected:
  /// True for the first: it alone fills the future, then calls publish().
  bool claim();
  void publish();

 private:
  enum class State : int { open, claimed, done };

  const std::shared_ptr<Executor> executor_;
  int road_ = -1;
  uint64_t ticket_ = 0;
  std::atomic<State> state_{State::open};
  std::exception_ptr error_;
  std::mutex mutex_;
  Waiter* waiter_ = nullptr;
  std::function<void()> then_, cancel_;
  std::weak_ptr<Canceller> canceller_;
  uint64_t id_ = 0;  // for canceller_
};

/// What stands for a value of void.
struct Nothing {};
template <class T>
using Stored = std::conditional_t<std::is_void_v<T>, Nothing, T>;

template <class T>
class FutureState final : public FutureCore {
 public:
  using FutureCore::FutureCore;
  bool set(Stored<T> value) {
    if (!claim()) return false;
    value_.emplace(std::move(value));
    publish();
    return true;
  }
  /// Once done, and once: the value, or throws the error.
  Stored<T> take() {
    if (failed()) std::rethrow_exception(take_error());
    return std::move(*value_);
  }

 private:
  std::optional<Stored<T>> value_;
};

}  // namespace trireme::rpc::detail
