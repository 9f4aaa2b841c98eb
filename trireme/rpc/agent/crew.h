// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/channel/channel.h"
#include "trireme/rpc/future_core.h"

// The threads of a worker, and which of them receives messages.
//
// One thread at a time serves a hub. A thread of the program that waits in get() does, if nobody
// else does: the answer then wakes the thread that wants it. Else one of ours does. Who gets a call
// out of a hub runs its handler, without waking another thread first: a road (a hub) that its
// server left for a moment is held for him for kHold, and one idle thread, the watchman, sees to it
// that nobody leaves it longer.
//
// At most `threads` handlers compute at a time. One that waits in get() does not count, up to
// `most_threads`; the last two of those are kept for calls within calls, for which a waiting
// handler may be waiting. Such a call is refused where every thread waits, because all might wait
// for it.
namespace trireme::rpc::detail {

/// A call whose handler is to run.
struct Job {
  bool nested = false;  // made within another call
  std::function<void()> run;
  std::function<void(const std::string& why)> refuse;  // it has no thread
};

class Crew final : public Executor, public std::enable_shared_from_this<Crew> {
 public:
  struct Options {
    std::string worker;  // for texts
    int threads = 2;
    int most_threads = 6;
  };
  /// What is due by `now`; returns when it is to be called next.
  using LookAfter = std::function<Clock::time_point(Clock::time_point now)>;

  explicit Crew(Options options) : options_(std::move(options)) {}
  ~Crew() override;

  void start(std::vector<std::shared_ptr<channel::Hub>> hubs, LookAfter look_after);

  /// A continuation: soon, on a thread of ours; after stop() on this one.
  void post(std::function<void()> task) override;
  void post(Job job);
  void wait(FutureCore& future) override;
  /// Serves and sleeps in turn until `reached` says so. False: the deadline has passed.
  bool wait_until(const std::function<bool()>& reached, Deadline deadline);
  /// LookAfter has something to do by `due`.
  void rouse(Clock::time_point due);

  /// Continuations that were posted still run; jobs do not. Returns once all threads but this one
  /// have ended. False: at the deadline some had not, and they end by themselves.
  bool stop(Deadline deadline);

  int threads() const;

  static constexpr Duration kHold = std::chrono::microseconds(500);

 private:
  struct Road {
    std::shared_ptr<channel::Hub> hub;
    bool served = false;
    bool woke_waiter = false;        // while it was served by one of ours
    Clock::time_point until;         // when its server looks up at the latest
    Clock::time_point held_until{};  // whoever else would serve it leaves it alone
    std::thread::id held_for{};      // but for this one
  };
  class Sleeper;
  using Lock = std::unique_lock<std::mutex>;

  void work();
  void serve(Lock& lock, size_t road, Sleeper* sleeper);
  void leave(Road& road, bool by_waiter);
  bool run_one(Lock& lock);
  bool run_continuation(Lock& lock);
  void rest(Lock& lock);
  int road_for_pool() const;
  int road_for(const Sleeper& sleeper) const;
  bool work_to_do() const;
  bool may_run(const Job& job) const;
  bool nobody_left() const;
  std::string why_nobody() const;
  void call_hands();
  void refuse_nested(Lock& lock);
  void interrupt(const Road& road);
  void drop_hubs(Lock& lock);

  const Options options_;
  LookAfter look_after_;
  mutable std::mutex mutex_;
  std::vector<Road> roads_;
  std::deque<std::function<void()>> continuations_;
  std::deque<Job> nested_, jobs_;
  std::list<Sleeper*> sleepers_;   // not in a hub
  std::list<std::string> waits_;   // of handlers: the chains of their calls
  std::condition_variable idle_;   // for threads of ours
  std::condition_variable ended_;  // for stop()
  std::list<std::thread> threads_;
  int alive_ = 0, starting_ = 0, resting_ = 0, running_ = 0, blocked_ = 0;
  bool watching_ = false, stopping_ = false;
  Clock::time_point soonest_ = Clock::time_point::max();  // told by rouse() since last looked
};

}  // namespace trireme::rpc::detail
