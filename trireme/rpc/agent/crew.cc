// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/crew.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/rpc/call.h"

namespace trireme::rpc::detail {
namespace {

// A server looks up this often by itself, so that a far deadline need not interrupt it.
constexpr Duration kLongestServe = std::chrono::seconds(1);
constexpr Duration kPoll = std::chrono::milliseconds(1);
constexpr int kKeptForNested = 2;

/// The crew whose hub this thread is in; null: none.
const Crew*& serving_for() {
  thread_local const Crew* crew = nullptr;
  return crew;
}

}  // namespace

/// A thread in wait(). All of it is guarded by the crew's mutex.
class Crew::Sleeper final : public Waiter {
 public:
  Sleeper(Crew& crew, int wanted) : wanted(wanted), crew_(crew) {}
  void wake() override {
    std::lock_guard lock(crew_.mutex_);
    woken = true;
    if (serving < 0) {
      condition.notify_one();
    } else if (thread != std::this_thread::get_id()) {
      crew_.interrupt(crew_.roads_[static_cast<size_t>(serving)]);
    }
    if (serving < 0 && serving_for() == &crew_)
      for (Road& road : crew_.roads_) road.woke_waiter = true;
  }

  const std::thread::id thread = std::this_thread::get_id();
  const int wanted;
  int serving = -1;
  bool woken = false;
  std::condition_variable condition;

 private:
  Crew& crew_;
};

Crew::~Crew() {
  for (std::thread& thread : threads_) thread.detach();  // after stop(): this thread, or late ones
}

void Crew::start(std::vector<std::shared_ptr<channel::Hub>> hubs, LookAfter look_after) {
  std::lock_guard lock(mutex_);
  look_after_ = std::move(look_after);
  for (auto& hub : hubs) roads_.emplace_back().hub = std::move(hub);
  call_hands();
}

int Crew::threads() const {
  std::lock_guard lock(mutex_);
  return alive_;
}

void Crew::work() {
  own_executor() = this;
  Lock lock(mutex_);
  --starting_;
  for (;;) {
    if (run_one(lock)) continue;
    if (stopping_) break;
    if (const int road = road_for_pool(); road >= 0)
      serve(lock, static_cast<size_t>(road), nullptr);
    else
      rest(lock);
  }
  --alive_;
  drop_hubs(lock);
  ended_.notify_all();
}

void Crew::interrupt(const Road& road) {
  if (road.hub) road.hub->interrupt();
}

// They hold what accepts for them, which holds us.
void Crew::drop_hubs(Lock& lock) {
  if (!stopping_ || alive_ > 0) return;
  std::vector<std::shared_ptr<channel::Hub>> hubs;
  for (Road& road : roads_) hubs.push_back(std::move(road.hub));
  lock.unlock();
  hubs.clear();
  lock.lock();
}

bool Crew::run_continuation(Lock& lock) {
  if (continuations_.empty()) return false;
  auto task = std::move(continuations_.front());
  continuations_.pop_front();
  ++running_;
  call_hands();
  lock.unlock();
  task();
  task = nullptr;
  lock.lock();
  --running_;
  return true;
}

bool Crew::run_one(Lock& lock) {
  if (run_continuation(lock)) return true;
  auto* jobs = !nested_.empty() && may_run(nested_.front()) ? &nested_
               : !jobs_.empty() && may_run(jobs_.front())   ? &jobs_
                                                            : nullptr;
  if (!jobs || stopping_) return false;
  Job job = std::move(jobs->front());
  jobs->pop_front();
  ++running_;
  call_hands();
  lock.unlock();
  job.run();
  job = {};
  lock.lock();
  --running_;
  return true;
}

bool Crew::may_run(const Job& job) const {
  const int most = options_.most_threads - (job.nested ? 0 : kKeptForNested);
  return running_ < options_.threads && running_ + blocked_ < std::max(most, options_.threads);
}

bool Crew::nobody_left() const { return running_ == 0 && blocked_ >= options_.most_threads; }

bool Crew::work_to_do() const {
  return !continuations_.empty() || (!nested_.empty() && may_run(nested_.front())) ||
         (!jobs_.empty() && may_run(jobs_.front()));
}

// Somebody for what is to be done, and for a road that nobody serves or watches.
void Crew::call_hands() {
  if (stopping_) return;
  const bool unserved = !watching_ && std::any_of(roads_.begin(), roads_.end(),
                                                  [](const Road& road) { return !road.served; });
  if (!work_to_do() && !unserved) return;
  if (starting_ > 0) return;  // he will call for more
  if (resting_ > 0) {
    idle_.notify_one();
  } else if (alive_ < options_.most_threads) {
    try {
      threads_.push_back(quiet_thread([crew = shared_from_this()] { crew->work(); }));
      ++alive_;
      ++starting_;
    } catch (const std::system_error& error) {  // those that there are must do
      check<ResourceError>(alive_ > 0, "worker '{}' can start no thread: {}", options_.worker,
                           error.what());
    }
  }
}

int Crew::road_for_pool() const {
  const auto now = Clock::now();
  for (size_t i = 0; i < roads_.size(); ++i)
    if (!roads_[i].served &&
        (now >= roads_[i].held_until || roads_[i].held_for == std::this_thread::get_id()))
      return static_cast<int>(i);
  return -1;
}

int Crew::road_for(const Sleeper& sleeper) const {
  for (size_t i = 0; i < roads_.size(); ++i)
    if (!roads_[i].served && (sleeper.wanted < 0 || sleeper.wanted == static_cast<int>(i)))
      return static_cast<int>(i);
  return -1;
}

void Crew::rest(Lock& lock) {
  Clock::time_point held = Clock::time_point::max();
  for (const Road& road : roads_)
    if (!road.served) held = std::min(held, road.held_until);
  ++resting_;
  if (held != Clock::time_point::max() && !watching_) {
    watching_ = true;
    idle_.wait_until(lock, held);
    watching_ = false;
  } else {
    idle_.wait(lock);
  }
  --resting_;
}

void Crew::serve(Lock& lock, size_t index, Sleeper* sleeper) {
  Road& road = roads_[index];
  road.served = true;
  road.woke_waiter = false;
  road.until = Clock::time_point::min();  // about to look: nobody need interrupt
  soonest_ = Clock::time_point::max();
  if (roads_.size() > 1) call_hands();  // another road may have nobody yet
  lock.unlock();
  const auto now = Clock::now();
  const auto next = look_after_(now);
  lock.lock();
  if (!stopping_ && !(sleeper && sleeper->woken) && (sleeper || !work_to_do())) {
    road.until = std::min({next, soonest_, now + kLongestServe});
    if (sleeper) sleeper->serving = static_cast<int>(index);
    const auto hub = road.hub;  // it may be dropped while this thread is in it
    const auto left = std::max(Duration::zero(), road.until - now);
    lock.unlock();
    const Crew* const outer = std::exchange(serving_for(), this);
    hub->serve(Deadline::after(left));
    serving_for() = outer;
    lock.lock();
    if (sleeper) sleeper->serving = -1;
  }
  leave(road, sleeper != nullptr);
}

void Crew::leave(Road& road, bool by_waiter) {
  road.served = false;
  road.held_for = by_waiter ? std::thread::id() : std::this_thread::get_id();
  // Whoever runs a handler now, or has got what he waited for, will soon be back.
  const bool for_a_moment = by_waiter || road.woke_waiter || work_to_do();
  road.held_until = for_a_moment ? Clock::now() + kHold : Clock::time_point();
  if (road.woke_waiter) road.held_for = {};  // he will serve himself the next time
  const auto index = &road - roads_.data();
  for (Sleeper* other : sleepers_)
    if (!other->woken && (other->wanted < 0 || other->wanted == index)) {
      if (for_a_moment) other->condition.notify_one();
      return;
    }
}

void Crew::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_ || alive_ > 0) {
      continuations_.push_back(std::move(task));
      if (serving_for() != this) call_hands();
      return;
    }
  }
  task();
}

void Crew::post(Job job) {
  std::string why;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      why = fmt::format("worker '{}' shuts down", options_.worker);
    } else if (job.nested && nobody_left()) {
      why = why_nobody();
    } else {
      (job.nested ? nested_ : jobs_).push_back(std::move(job));
      if (serving_for() != this) call_hands();
      return;
    }
  }
  job.refuse(why);
}

std::string Crew::why_nobody() const {
  std::string waits;
  for (const std::string& wait : waits_) waits += (waits.empty() ? "" : "; ") + wait;
  return fmt::format(
      "worker '{}' has no thread left for it: all {} wait, in {}. A handler that waits for other "
      "calls should return their Future (then, co_await); or give the worker more threads",
      options_.worker, options_.most_threads, waits);
}

void Crew::refuse_nested(Lock& lock) {
  if (!nobody_left() || nested_.empty()) return;
  std::deque<Job> refused = std::exchange(nested_, {});
  const std::string why = why_nobody();
  lock.unlock();
  for (Job& job : refused) job.refuse(why);
  lock.lock();
}

void Crew::wait(FutureCore& future) {
  Sleeper me(*this, future.road());
  if (!future.enlist(&me)) return;
  const bool ours = own_executor() == this;
  Lock lock(mutex_);
  auto waits = waits_.end();
  if (ours) {
    const auto& call = current_call();
    waits = waits_.insert(waits_.end(), call ? wire::shown(call->chain()) : "what follows a call");
    --running_;
    ++blocked_;
    refuse_nested(lock);
    call_hands();
  }
  while (!me.woken) {
    if (ours && nobody_left() && run_continuation(lock)) continue;
    if (const int road = stopping_ ? -1 : road_for(me); road >= 0) {
      serve(lock, static_cast<size_t>(road), &me);
      if (!me.woken && work_to_do()) call_hands();  // for what it received
      continue;
    }
    const auto place = sleepers_.insert(sleepers_.end(), &me);
    me.condition.wait(lock);
    sleepers_.erase(place);
  }
  if (ours) {
    waits_.erase(waits);
    --blocked_;
    ++running_;
  }
  call_hands();
}

bool Crew::wait_until(const std::function<bool()>& reached, Deadline deadline) {
  while (!reached()) {
    if (deadline.expired()) return false;
    Lock lock(mutex_);
    if (const int road = stopping_ ? -1 : road_for(Sleeper(*this, -1)); road >= 0) {
      soonest_ = std::min(soonest_, Clock::now());
      Road& taken = roads_[static_cast<size_t>(road)];
      taken.served = true;
      taken.until = Clock::time_point::min();
      const auto hub = taken.hub;
      lock.unlock();
      look_after_(Clock::now());
      const Crew* const outer = std::exchange(serving_for(), this);
      hub->serve(Deadline::after(std::min(deadline.remaining(), kPoll)));
      serving_for() = outer;
      lock.lock();
      leave(taken, true);
      call_hands();
    } else {
      std::condition_variable nobody;
      nobody.wait_for(lock, std::min(deadline.remaining(), kPoll));
    }
  }
  return true;
}

void Crew::rouse(Clock::time_point due) {
  std::lock_guard lock(mutex_);
  soonest_ = std::min(soonest_, due);
  Road* asleep = nullptr;
  for (Road& road : roads_) {
    if (!road.served) continue;
    if (road.until <= due) return;
    asleep = &road;
  }
  if (asleep)
    interrupt(*asleep);
  else if (!watching_)
    call_hands();
}

bool Crew::stop(Deadline deadline) {
  std::deque<Job> dropped, dropped_nested;  // destroyed outside of the lock: objects are in them
  Lock lock(mutex_);
  stopping_ = true;
  dropped.swap(jobs_);
  dropped_nested.swap(nested_);
  idle_.notify_all();
  for (Sleeper* sleeper : sleepers_) sleeper->condition.notify_one();
  for (Road& road : roads_)
    if (road.served) interrupt(road);
  const int mine = own_executor() == this ? 1 : 0;
  const auto gone = [&] { return alive_ <= mine; };
  if (deadline.is_never())
    ended_.wait(lock, gone);
  else
    ended_.wait_for(lock, deadline.remaining(), gone);
  const bool all = gone();
  if (!all || mine) return all;
  drop_hubs(lock);
  std::list<std::thread> ended = std::exchange(threads_, {});
  lock.unlock();
  for (std::thread& thread : ended) thread.join();
  return true;
}

}  // namespace trireme::rpc::detail
