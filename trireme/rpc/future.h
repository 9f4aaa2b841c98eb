// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <memory>
#include <type_traits>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/rpc/future_core.h"

// Values that come later. A remote call returns a Future; a handler may, too, and then holds no
// thread while it waits:
//
//   double loss = server.async<evaluate>(batch).get();                       // waits
//   server.async<evaluate>(batch).then([](double loss) { … });              // goes on by itself
//   Future<double> twice(double x) { co_return 2 * co_await peer.async<half>(x); }
//
// What continues (then, co_await) runs on a thread of the worker whose call it was, never on the
// one that receives messages; of a Promise of one's own, on the thread that keeps it.
namespace trireme::rpc {

template <class T>
class Promise;
template <class T>
class Future;

namespace detail {
template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<Future<T>> {
  using Type = T;
};
template <class F, class T>
struct Continued {
  using Type = std::invoke_result_t<F&, T>;
};
template <class F>
struct Continued<F, void> {
  using Type = std::invoke_result_t<F&>;
};
template <class T>
class CoroutinePromise;
}  // namespace detail

/// One user: it is moved, not copied, and its value is taken once, by get(), then() or co_await.
/// Destroying it does not cancel the call.
template <class T>
class [[nodiscard]] Future {
 public:
  using Value = T;
  using promise_type = detail::CoroutinePromise<T>;

  Future() = default;
  explicit Future(std::shared_ptr<detail::FutureState<T>> state) : state_(std::move(state)) {}
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;

  /// False once its value was taken.
  bool valid() const { return state_ != nullptr; }
  /// get() would not wait.
  bool ready() const { return state().done(); }

  /// Waits for the value, at most until the call's deadline, and takes it. Throws what went wrong:
  /// errors of ours as their class, RemoteError for others', Timeout, CallLost, Aborted.
  T get() {
    state().wait();
    auto state = std::move(state_);
    if constexpr (std::is_void_v<T>)
      state->take();
    else
      return state->take();
  }

  /// Calls f(value) when there is one; errors pass f by. The future of what f returns, or of what
  /// the future that f returns comes to.
  template <class F>
  auto then(F f) {
    using Result = typename detail::Continued<F, T>::Type;
    using Value = typename detail::Unwrapped<Result>::Type;
    auto next = std::make_shared<detail::FutureState<Value>>(state().executor());
    auto mine = std::move(state_);
    next->comes_by(mine->road());
    next->stems_from(mine->ticket());
    next->on_cancel([before = std::weak_ptr(mine)] {
      if (auto state = before.lock()) state->cancel();
    });
    auto& core = *mine;
    // What f holds need not be copyable, as a std::function's target must be.
    core.when_done([mine = std::move(mine), next, f = std::make_shared<F>(std::move(f))] {
      if (mine->failed()) {
        next->fail(mine->take_error());
        return;
      }
      std::exception_ptr error;
      try {
        const auto call = [&]() -> Result {
          if constexpr (std::is_void_v<T>)
            return (*f)();
          else
            return (*f)(mine->take());
        };
        if constexpr (!std::is_same_v<Result, Value>) {
          call().pass_to(next);
        } else if constexpr (std::is_void_v<Value>) {
          call();
          next->set({});
        } else {
          next->set(call());
        }
      } catch (...) {
        error = std::current_exception();
      }
      if (error) next->fail(std::move(error));
    });
    return Future<Value>(std::move(next));
  }

  /// The call is not waited for any more: get() throws Aborted, unless the value was there, and the
  /// handler is told by its stop token. One that did not begin will not.
  void cancel() { state().cancel(); }

  struct Awaiter {
    std::shared_ptr<detail::FutureState<T>> state;
    bool await_ready() const { return state->done(); }
    void await_suspend(std::coroutine_handle<> handle) {
      const auto kept = state;  // this awaiter may be gone before when_done() returns
      kept->when_done([handle] { handle.resume(); });
    }
    T await_resume() {
      if constexpr (std::is_void_v<T>)
        state->take();
      else
        return state->take();
    }
  };
  Awaiter operator co_await() {
    state();
    return {std::move(state_)};
  }

  /// Calls f(state) once it is ready, whatever came of it. Returns the state.
  template <class F>
  std::shared_ptr<detail::FutureState<T>> consume(F f) {
    state();
    auto mine = std::move(state_);
    mine->when_done([mine, f = std::make_shared<F>(std::move(f))] { (*f)(*mine); });
    return mine;
  }

  /// Its value or error becomes that of `next`.
  void pass_to(const std::shared_ptr<detail::FutureState<T>>& next) {
    state();
    auto mine = std::move(state_);
    auto& core = *mine;
    next->on_cancel([before = std::weak_ptr(mine)] {
      if (auto state = before.lock()) state->cancel();
    });
    core.when_done([mine = std::move(mine), next] {
      if (mine->failed())
        next->fail(mine->take_error());
      else
        next->set(mine->take());
    });
  }

 private:
  detail::FutureState<T>& state() const {
    check<UsageError>(valid(),
                      "this Future has no value to wait for: it was taken before, by get(), then() "
                      "or co_await, or never had one");
    return *state_;
  }

  std::shared_ptr<detail::FutureState<T>> state_;
};

/// The other end of a Future that a program makes itself, for handlers that answer later. Without a
/// value at its destruction, the Future fails with Aborted.
template <class T>
class Promise {
 public:
  Promise() : state_(std::make_shared<detail::FutureState<T>>(nullptr)) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Promise() {
    if (state_)
      state_->fail(std::make_exception_ptr(
          Aborted("the Promise of this value was destroyed before it was kept")));
  }
  /// Once.
  Future<T> future() {
    check<UsageError>(!std::exchange(taken_, true), "the Future of this Promise was taken before");
    return Future<T>(state_);
  }
  /// False: it has a value or an error already, or nobody waits for it any more.
  template <class... V>
  bool set(V&&... value) {
    return state_->set(detail::Stored<T>{std::forward<V>(value)...});
  }
  bool fail(std::exception_ptr error) { return state_->fail(std::move(error)); }

 private:
  std::shared_ptr<detail::FutureState<T>> state_;
  bool taken_ = false;
};

/// A Future that has its value.
template <class T>
Future<std::decay_t<T>> ready(T&& value) {
  auto state = std::make_shared<detail::FutureState<std::decay_t<T>>>(nullptr);
  state->set(std::forward<T>(value));
  return Future<std::decay_t<T>>(std::move(state));
}

namespace detail {

/// A coroutine that returns a Future begins at once, and goes on where what it awaits continues.
template <class T>
class CoroutineBase {
 public:
  Future<T> get_return_object() { return Future<T>(state_); }
  std::suspend_never initial_suspend() noexcept { return {}; }
  std::suspend_never final_suspend() noexcept { return {}; }
  void unhandled_exception() { state_->fail(std::current_exception()); }

 protected:
  std::shared_ptr<FutureState<T>> state_ = std::make_shared<FutureState<T>>(nullptr);
};

template <class T>
class CoroutinePromise final : public CoroutineBase<T> {
 public:
  template <class V>
  void return_value(V&& value) {
    this->state_->set(std::forward<V>(value));
  }
};
template <>
class CoroutinePromise<void> final : public CoroutineBase<void> {
 public:
  void return_void() { state_->set({}); }
};

}  // namespace detail
}  // namespace trireme::rpc
