// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/future_core.h"

#include <condition_variable>

#include "trireme/base/error.h"
#include "trireme/rpc/call.h"
#include "trireme/rpc/transit.h"

namespace trireme::rpc::detail {
namespace {

class SleepingWaiter final : public Waiter {
 public:
  void wake() override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    condition_.notify_one();  // under the lock: nothing of this may be touched after it
  }
  void sleep() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [this] { return woken_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool woken_ = false;
};

}  // namespace

Executor::~Executor() = default;

Executor*& own_executor() {
  thread_local Executor* executor = nullptr;
  return executor;
}

FutureCore::~FutureCore() = default;

bool FutureCore::claim() {
  State open = State::open;
  return state_.compare_exchange_strong(open, State::claimed, std::memory_order_acq_rel);
}

void FutureCore::publish() {
  Waiter* waiter = nullptr;
  std::function<void()> then, cancel;
  {
    std::lock_guard lock(mutex_);
    state_.store(State::done, std::memory_order_release);
    waiter = std::exchange(waiter_, nullptr);
    then = std::move(then_);
    cancel = std::move(cancel_);  // destroyed outside of the lock: it may hold others
    then_ = nullptr;
    cancel_ = nullptr;
  }
  const std::shared_ptr<Executor> executor =
      executor_;  // the waiter may be this future's last user
  if (waiter) waiter->wake();
  if (!then) return;
  if (executor)
    executor->post(std::move(then));
  else
    then();
}

bool FutureCore::fail(std::exception_ptr error) {
  if (!claim()) return false;
  error_ = std::move(error);
  publish();
  return true;
}

bool FutureCore::enlist(Waiter* waiter) {
  std::lock_guard lock(mutex_);
  if (done()) return false;
  waiter_ = waiter;
  return true;
}

void FutureCore::wait() {
  if (done()) return;
  const WaitScope waits(current_call(), ticket_);
  if (Executor* executor = executor_ ? executor_.get() : own_executor())
    return executor->wait(*this);
  SleepingWaiter waiter;
  if (enlist(&waiter)) waiter.sleep();
}

void FutureCore::when_done(std::function<void()> task) {
  auto with_call = [call = current_call(), context = current_context(), task = std::move(task)] {
    CallScope scope(call);
    ContextScope within(context);
    task();
  };
  {
    std::lock_guard lock(mutex_);
    if (!done()) {
      then_ = std::move(with_call);
      return;
    }
  }
  if (executor_)
    executor_->post(std::move(with_call));
  else
    with_call();
}

void FutureCore::on_cancel(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (!done()) cancel_ = std::move(task);
}

void FutureCore::cancels(std::weak_ptr<Canceller> canceller, uint64_t id) {
  std::lock_guard lock(mutex_);
  canceller_ = std::move(canceller);
  id_ = id;
}

void FutureCore::cancel() {
  std::function<void()> task;
  std::shared_ptr<Canceller> canceller;
  {
    std::lock_guard lock(mutex_);
    if (done()) return;
    task = std::exchange(cancel_, nullptr);
    canceller = canceller_.lock();
  }
  if (task) task();
  if (canceller) canceller->cancel(id_);
  std::exception_ptr error =
      std::make_exception_ptr(Aborted("the call was cancelled by its caller"));
  fail(std::move(error));
}

}  // namespace trireme::rpc::detail
