// SPDX-License-Identifier: Apache-2.0
// Actors whose worker is gone: on a thread of their group's own, since looking for workers waits.
#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/actor/group.h"
#include "trireme/rpc/agent/agent.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc::detail {
namespace {

// How often it looks whether a worker is back, and how long it tries to reach one.
constexpr Duration kLookAgain = std::chrono::milliseconds(50);
constexpr Duration kReach = std::chrono::seconds(2);

}  // namespace

void Group::mend() {
  for (;;) {
    std::vector<int> away;
    {
      Lock lock(mutex_);
      const auto is_away = [](const Slot& slot) { return slot.state == State::away; };
      changed_.wait(lock,
                    [&] { return ended_ || std::any_of(slots_.begin(), slots_.end(), is_away); });
      if (ended_) return;
      for (int rank = 0; rank < size(); ++rank)
        if (is_away(slot(rank))) away.push_back(rank);
    }
    auto workers = candidates();
    for (const int rank : away) mend_one(rank, workers);
    Lock lock(mutex_);
    if (std::any_of(slots_.begin(), slots_.end(),
                    [](const Slot& slot) { return slot.state == State::away; }))
      changed_.wait_for(lock, kLookAgain, [&] { return ended_; });
  }
}

std::vector<Candidate> Group::candidates() {
  std::vector<std::string> names;
  try {
    names = worker_.workers();
  } catch (const Error& error) {  // the store may be away for a while
    log_warn("group '{}' cannot look for workers: {}", options_.name, brief(error));
  }
  std::vector<Candidate> found(workers_.size());
  for (size_t i = 0; i < workers_.size(); ++i)
    found[i].there = std::find(names.begin(), names.end(), workers_[i]) != names.end();
  std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_)
    if (slot.state == State::there) ++found[slot.worker].actors;
  return found;
}

void Group::mend_one(int rank, std::vector<Candidate>& workers) {
  const Supervision& policy = options_.supervision;
  size_t before = 0;
  {
    Lock lock(mutex_);
    if (ended_) return;
    Slot& mine = slot(rank);
    before = mine.worker;
    if (shuts_down()) {
      mine.state = State::failed;
      mine.story = fmt::format("worker '{}', which spawned it, has shut down", worker_.name());
      return;
    }
    if (Clock::now() - mine.away_since > policy.patience)
      return fail_for_good(
          lock, rank, mine.history.story() + "; no worker that it may be restarted on came back");
  }
  while (const auto chosen = place_for(workers, before, policy.on_death)) {
    std::shared_ptr<FutureState<void>> ready;
    try {
      const auto line = Access::agent(worker_)->line(workers_[*chosen], Deadline::after(kReach));
      ready = begin_life(rank, *chosen, line);
      {
        std::lock_guard lock(mutex_);
        mending_ = ready;
        if (ended_) return;
      }
      wait_until_made(rank, std::move(ready));
      ++workers[*chosen].actors;
      if (is_back(rank))
        log_warn("actor '{}' {} of {} is back, on worker '{}'", options_.name, rank, size(),
                 workers_[*chosen]);
      return;
    } catch (const PeerLost&) {  // it was gone, though the store did not know
      workers[*chosen].there = false;
      drop_life(rank);
    } catch (const Timeout&) {
      workers[*chosen].there = false;
      drop_life(rank);
    } catch (const std::exception& error) {
      drop_life(rank);
      Lock lock(mutex_);
      if (ended_) return;
      Slot& mine = slot(rank);
      if (!mine.history.may_restart(Clock::now() - began_, policy, brief(error)))
        return fail_for_good(lock, rank, mine.history.story());
      return;
    }
  }
}

void Group::drop_life(int rank) {
  std::shared_ptr<FutureState<void>> life;
  {
    std::lock_guard lock(mutex_);
    life = std::move(slot(rank).life);
  }
  if (life) life->cancel();
}

// What was sent meanwhile goes first. False: it is gone again, or the group was ended.
bool Group::is_back(int rank) {
  for (;;) {
    std::deque<Pending> pending;
    std::shared_ptr<Line> line;
    uint64_t actor = 0;
    {
      std::lock_guard lock(mutex_);
      Slot& mine = slot(rank);
      if (ended_) return false;
      if (mine.pending.empty()) {
        mine.state = State::there;
        if (mine.life && !mine.life->done()) return true;
        mine.state = State::away;  // its end came too early to be noticed
        return false;
      }
      pending.swap(mine.pending);
      line = mine.line;
      actor = mine.actor;
    }
    for (Pending& next : pending) {
      if (next.message.future->done()) continue;  // too late, or cancelled
      CallScope within(next.within);
      send_to(line, type_, std::move(next.message), actor, next.ticket, next.deadline);
    }
  }
}

}  // namespace trireme::rpc::detail
