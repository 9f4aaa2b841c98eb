// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/server/node.h"

// Gradients come, steps are made, and workers go on.
namespace trireme::rpc::server {

bool Node::may_begin(int rank, int64_t step) const {
  if (!broken_.empty()) return true;  // to hear of it
  return begun_ && clocks_.presence(rank) == plan::Presence::here &&
         clocks_.may_begin(rank, step) && (clocks_.synchronous() || clocks_.clock(rank) >= step);
}

// Without the lock: it looks at gradients, which may be many.
void Node::check_push(const Push& push) const {
  check<UsageError>(
      push.keys.size() == push.gradients.size() && push.tables.size() == push.rows.size() &&
          push.tables.size() == push.row_gradients.size() &&
          (push.tables.empty() || push.total >= 0) && push.attempt >= 0 && push.total >= -1 &&
          push.total <= static_cast<int64_t>(holdings_->keys()) && std::isfinite(push.lr),
      "gradients of worker {} are no message of a step", push.rank);
  std::set<uint32_t> keys;
  for (size_t i = 0; i < push.keys.size(); ++i) {
    check<UsageError>(keys.insert(push.keys[i]).second,
                      "worker {} gives the gradient of key {} twice", push.rank, push.keys[i]);
    check<UsageError>(push.gradients[i].defined(), "gradient {} of a message is undefined", i);
    holdings_->check_gradient(push.keys[i], push.gradients[i]);
  }
  for (size_t i = 0; i < push.tables.size(); ++i)
    holdings_->check_row_gradients(push.tables[i], push.rows[i], push.row_gradients[i]);
}

Answer Node::push(Call& call, const Push& push) {
  check_sound();
  {
    std::lock_guard lock(mutex_);
    check_caller(call, push.rank);
  }
  check_push(push);
  {
    std::lock_guard lock(mutex_);
    if (push.epoch != epoch_) return Answer::over;
    const bool expected = push.step == clocks_.clock(push.rank) &&
                          may_begin(push.rank, push.step) &&
                          !members_[static_cast<size_t>(push.rank)].gradients.complete();
    check<UsageError>(expected, "{} gives gradients of step {}, and is at step {}",
                      called(push.rank), push.step, clocks_.clock(push.rank));
    file(push);
  }
  settle();
  return Answer::done;
}

void Node::file(const Push& push) {
  Member& member = members_[static_cast<size_t>(push.rank)];
  Gradients& gradients = member.gradients;
  if (gradients.of_keys.empty()) member.attempt = push.attempt;
  if (push.attempt < member.attempt) return;
  if (push.attempt > member.attempt) gradients = {};
  member.attempt = push.attempt;
  gradients.of_keys.resize(std::max<size_t>(holdings_->keys(), 1));
  if (push.total >= 0 && clocks_.synchronous())
    for (int r = 0; r < clocks_.workers(); ++r) {
      const Gradients& other = members_[static_cast<size_t>(r)].gradients;
      check<Mismatch>(r == push.rank || !other.complete() || other.lr == push.lr,
                      "{} steps with a learning rate of {}, and {} with {}, in step {}",
                      called(push.rank), push.lr, called(r), other.lr, push.step);
    }
  for (const uint32_t key : push.keys)
    check<UsageError>(!gradients.of_keys[key].defined(), "{} gives the gradient of key {} twice",
                      called(push.rank), key);
  for (size_t i = 0; i < push.keys.size(); ++i) {
    gradients.of_keys[push.keys[i]] = push.gradients[i];
    ++gradients.got;
  }
  for (size_t i = 0; i < push.tables.size(); ++i)
    gradients.of_tables[push.tables[i]] = {push.rows[i], push.row_gradients[i]};
  if (push.total >= 0) {
    gradients.total = push.total;
    gradients.lr = push.lr;
  }
  if (!gradients.complete()) return;
  if (clocks_.synchronous())
    clocks_.gave(push.rank);
  else
    given_.push_back({push.rank, gradients});
}

void Node::wait_for_turn(const Call& call, const Wanted& wanted, std::function<void(Answer)> go) {
  check_step(wanted.step);
  std::unique_lock lock(mutex_);
  check_caller(call, wanted.rank);
  check<UsageError>(!clocks_.synchronous() || clocks_.presence(wanted.rank) != plan::Presence::lost,
                    "{} was lost and is left out: start the job again, from its checkpoints",
                    called(wanted.rank));
  Answer answer = Answer::done;
  if (wanted.epoch != epoch_) {
    answer = Answer::over;
  } else if (!may_begin(wanted.rank, wanted.step)) {
    std::erase_if(waiters_, [](const Waiter& w) { return w.stop.stop_requested(); });
    waiters_.push_back({wanted.rank, wanted.step, call.stop_token(), std::move(go)});
    return;
  }
  lock.unlock();
  go(answer);
}

Future<Weights> Node::pull(Call& call, const Wanted& wanted) {
  auto promise = std::make_shared<Promise<Weights>>();
  Future<Weights> future = promise->future();
  wait_for_turn(call, wanted, [this, promise](Answer answer) {
    try {
      check_sound();
      Weights weights{answer, {}};
      if (answer == Answer::done) {
        std::shared_lock lock(weights_);
        // A synchronous step closes when this worker has pushed again, which is after it has them.
        weights.buffers = holdings_->buffers(clocks_.synchronous());
      }
      promise->set(std::move(weights));
    } catch (...) {
      promise->fail(std::current_exception());
    }
  });
  return future;
}

Future<Rows> Node::look_up(Call& call, const Lookup& lookup) {
  {
    std::lock_guard lock(mutex_);
    check_caller(call, lookup.wanted.rank);
  }
  holdings_->check_rows(lookup.table, lookup.rows);
  auto promise = std::make_shared<Promise<Rows>>();
  Future<Rows> future = promise->future();
  wait_for_turn(call, lookup.wanted,
                [this, promise, table = lookup.table, numbers = lookup.rows](Answer answer) {
                  try {
                    check_sound();
                    Rows rows{answer, {}};
                    if (answer == Answer::done) {
                      std::shared_lock lock(weights_);
                      rows.rows = holdings_->rows(table, numbers);
                    }
                    promise->set(std::move(rows));
                  } catch (...) {
                    promise->fail(std::current_exception());
                  }
                });
  return future;
}

// Whoever has changed something calls it, without the lock. One thread at a time is in it; others
// leave word that it look again.
void Node::settle() {
  std::unique_lock lock(mutex_);
  again_ = true;
  if (settling_) return;
  settling_ = true;
  while (std::exchange(again_, false)) {
    release(lock);
    for (auto step = next_step(); !step.empty(); step = next_step()) {
      lock.unlock();
      make(std::move(step));
      lock.lock();
      release(lock);
      const bool due = broken_.empty() && !options_.folder.empty() &&
                       clocks_.step() % options_.save_every == 0 && saved_ != clocks_.step();
      if (!due) continue;
      tail_.post([this] {
        save();
        {
          std::lock_guard held(mutex_);
          settling_ = false;
          settled_.notify_all();
        }
        settle();
      });
      return;  // and nobody else settles until then
    }
  }
  settling_ = false;
  settled_.notify_all();
}

std::vector<Contribution> Node::next_step() {
  std::vector<Contribution> step;
  if (!begun_ || !broken_.empty()) return step;
  for (const int rank : clocks_.complete())
    step.push_back({rank, std::move(members_[static_cast<size_t>(rank)].gradients)});
  if (step.empty() && !given_.empty()) {
    step.push_back(std::move(given_.front()));
    given_.pop_front();
  }
  return step;
}

void Node::make(std::vector<Contribution> contributions) {
  std::vector<int> ranks;
  for (const auto& c : contributions) ranks.push_back(c.rank);
  std::string wrong;
  try {
    std::unique_lock lock(weights_);
    holdings_->step(std::move(contributions));
  } catch (const std::exception& error) {
    wrong = fmt::format("the parameter server could not make step {}, and goes no further: {}",
                        steps(), brief(error));
    log_error("{}", wrong);
  }
  std::lock_guard lock(mutex_);
  broken_ = wrong;
  for (const int rank : ranks) {
    members_[static_cast<size_t>(rank)].gradients = {};
    if (!clocks_.synchronous()) clocks_.gave(rank);
  }
  if (clocks_.synchronous()) clocks_.close();
}

void Node::release(std::unique_lock<std::mutex>& lock) {
  std::vector<Waiter> ready;
  for (auto& waiter : waiters_)
    if (may_begin(waiter.rank, waiter.step)) ready.push_back(std::move(waiter));
  std::erase_if(waiters_, [](const Waiter& w) { return !w.go; });
  if (ready.empty()) return;
  lock.unlock();
  for (const Waiter& waiter : ready) waiter.go(Answer::done);
  ready.clear();
  lock.lock();
}

int64_t Node::steps() const {
  std::lock_guard lock(mutex_);
  return clocks_.step();
}

}  // namespace trireme::rpc::server
